"""Experiments: one claim a file, each with a figure and a number.

`python -m experiments` runs all of them into a report; `--list` says what there is. A file that
offers `run(out, quick)` is an experiment; the rest serves them:

    __main__.py  runner.py                 find them, run them, exit status
    report.py  page.py  figures.py         results.json, report.html, how figures look
    saturation_integrals.py                exact averages of the softmax
    text.py  ngrams.py  training.py  run_folder.py  sampling.py       for language_model.py
    dates.py  translation.py  fitting.py  alignment_figure.py         for those on sequences
    digits.py  image_classifiers.py  shapes.py  boxes.py  detector.py for those on pictures
    average_precision.py  convolution_heads.py  resumable.py          likewise
"""
