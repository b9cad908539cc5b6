"""Text: what is refused, how it is split, which windows it makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import text


def test_the_default_text_ships_with_python():
    assert len(text.read(None)) > 300_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "which is empty"),
        (b" \n\n", "which is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", r"must be UTF-8.*binary.*byte 0x89 at 0"),
        ("café".encode("latin-1"), r"byte 0xe9 at 3"),
    ],
)
def test_files_that_are_no_text(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        text.read(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="--text must name a file"):
        text.read(tmp_path / "nothing.txt")


def test_any_utf8_is_read_as_it_is(tmp_path):
    path = tmp_path / "file"
    path.write_bytes("ζ 語".encode())
    assert text.read(path).decode() == "ζ 語"


def test_a_text_too_short_says_how_long_it_must_be():
    with pytest.raises(ValueError, match="at least 91 bytes for context=8.*got 60"):
        text.split(b"x" * 60, context=8)
    assert len(text.split(b"x" * 91, context=8).validation) == 9


def test_the_last_tenth_is_validation():
    parts = text.split(bytes(range(200)), context=4)
    assert (parts.train[-1], parts.validation[0], len(parts.validation)) == (179, 180, 20)


@pytest.mark.parametrize("context", [1, 2, 7, 8])
@pytest.mark.parametrize("length", [23, 64])
def test_every_byte_is_predicted_once_from_enough_before_it(context, length):
    tokens = np.arange(100, dtype=np.uint8)
    parts = text.Text(tokens[: 100 - length], tokens[100 - length :])
    windows, counts = text.validation_windows(parts, context, batch=4)
    assert len(windows) % 4 == 0 and windows.shape[1] == context + 1
    predicted = windows[:, 1:][counts]
    np.testing.assert_array_equal(predicted, parts.validation)
    # Within a window bytes follow each other, and a counted one has enough of them before it.
    where = np.nonzero(counts)[1] + 1
    assert where.min() >= context - max(context // 2, 1) + 1
    used = counts.any(axis=1)
    rows, columns = np.nonzero(counts)
    np.testing.assert_array_equal(windows[rows, columns] + 1, windows[rows, columns + 1])
    assert used.sum() == -(-length // max(context // 2, 1))


def test_random_windows_lie_in_the_text_and_reach_its_ends():
    tokens = jnp.arange(20, dtype=jnp.uint8)
    windows = np.asarray(text.random_windows(jax.random.key(0), tokens, batch=300, context=5))
    assert windows.shape == (300, 6)
    np.testing.assert_array_equal(windows - windows[:, :1], np.tile(np.arange(6), (300, 1)))
    assert (windows.min(), windows.max()) == (0, 19)
