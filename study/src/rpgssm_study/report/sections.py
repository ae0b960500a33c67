"""The sections of the report, in its order: each with a figure or table and a caption."""

from rpgssm.report.page import Section

from . import films, scores, tables, times

CHOICE = (
    "Of the settings tried, validation sequences chose, for every method alike; what is shown is measured on test "
    "sequences. What was tried is not alike: the recipes of the RP-GSSM were developed on these tasks, some of them "
    "because an earlier one had missed its aim on the test sequences, while the others have the few settings of the "
    "protocol. Part of a lead may be due to that."
)


SECTIONS: tuple[Section, ...] = (
    Section(
        "main",
        "All methods on all tasks",
        "How much of the true state can be read off the latents by linear regression: R² averaged over the targets "
        "of a task, median over seeds (how many: next table). 1 is perfect, 0 is no better than always guessing the "
        "mean. The ceiling is what a smoother reaches that knows the true model, where there is such a thing. "
        f"{CHOICE}",
        rows=tables.main,
    ),
    Section(
        "verdicts",
        "Is the RP-GSSM first?",
        "It should be first by a clear margin (0.05) wherever there are distractors, and within 0.02 of the best "
        "elsewhere. Where it is not, this table says so; beside one with more than 0.95 no margin can be that clear. "
        "'Seeds' is the number of trainings of the RP-GSSM; with a single one, luck has not been ruled out.",
        rows=tables.verdicts,
    ),
    Section(
        "scored-settings",
        "How many settings were scored on the test sequences",
        "The number of settings of each method that have a stored result on the test sequences of a task, those of the "
        "accuracy runs included. Several for the RP-GSSM are recipes that followed each other (and for the single "
        "pendulums two with fewer latents). What was tried with it on validation sequences only is not counted: "
        "study/NOTES.md lists it, and a result on the double pendulum that was not kept.",
        rows=tables.scored_settings,
    ),
    Section(
        "aims",
        "The RP-GSSM against its aims",
        "Held-out linear R² of each target with the recipe of the task: median over seeds and range. A tick means that "
        "the aim is reached. Minutes are those of one training, on a machine that may have had other work to do.",
        rows=tables.aims,
    ),
    Section(
        "linear",
        "Linear systems of three sizes",
        "Each dot is another random system with its own data; the line is the median of a method; what is far "
        "below is written as a number. Dashed: the exact "
        "smoother with the true parameters (median; the grey band is its range over systems). Nothing can be better "
        "but by chance.",
        draw=scores.linear_sizes,
    ),
    Section(
        "video-linear",
        "Video, without and with distractors: linear readout",
        "Left: clean films. Right: the same worlds before distracting backgrounds. Bars are medians over seeds, dots "
        "single seeds; what lies below 0 is drawn as 0.",
        draw=lambda c: scores.all_video(c, "linear"),
    ),
    Section(
        "video-kernel",
        "Video, without and with distractors: kernel readout",
        "As above, but read off by kernel ridge regression with one regulariser for all: what is in the latents, "
        "straight or bent.",
        draw=lambda c: scores.all_video(c, "kernel"),
    ),
    Section(
        "targets-linear",
        "Target by target: linear readout",
        "The same scores for each quantity by itself. Positions and angles can be seen in a single frame; velocities "
        "only by comparing frames.",
        draw=lambda c: scores.by_target(c, "linear"),
    ),
    Section(
        "targets-kernel",
        "Target by target: kernel readout",
        "As above, by kernel ridge regression.",
        draw=lambda c: scores.by_target(c, "kernel"),
    ),
    Section(
        "pendulum-64",
        "A pendulum learned from 64 films",
        "Only the first 64 training films are used, instead of 500. Angle and angular velocity by linear readout.",
        draw=lambda c: scores.by_target(c, "linear", ("pendulum-64",)) if c.of("pendulum-64") else None,
    ),
    Section(
        "reconstructions",
        "What the latents hold of a film with distractors",
        "Frames of the first test film of CIFAR10-Pendulum, and what decoders make of the latents. The generative "
        "method is the one that validation prefers among those the paper compares with; it has a decoder of its own. "
        "For the others an auxiliary decoder was trained afterwards on latents that stay as they are. What a latent "
        "ignores, its decoder can only draw as a flat average.",
        draw=films.reconstructions,
    ),
    Section(
        "forecast",
        "Fifty frames ahead",
        "The first test film of CIFAR10-Pendulum: 50 frames are seen, 50 are predicted. Shades are two standard "
        "deviations of the latents and of the readout. The other method is the generative one of the paper that "
        "validation prefers. Outside of the panel a line is cut.",
        draw=films.forecast,
    ),
    Section(
        "paths",
        "One path before five backgrounds",
        "The first test film of DAVIS-Tracking. Black: where the rat was. Coloured: where each method believes it was, "
        "for the same path before five different background videos. The closer to each other, the less the background "
        "matters. The dot is where it starts. The generative method is the one of the paper that validation prefers.",
        draw=films.paths,
    ),
    Section(
        "robustness",
        "How much the background moves what is inferred",
        "The same films before five backgrounds: the part of the variance of latents and decoded targets that is due "
        "to the background. 0: ignored; 1: nothing else counts.",
        rows=tables.robustness,
    ),
    Section(
        "horizon",
        "Forecasts against horizon",
        "R² of what is predicted so many frames after 50 frames of context, decoded by the readout that was fitted "
        "to smoothed latents; median over seeds. Below -0.27 a curve leaves its panel. Methods without dynamics do "
        "not appear.",
        draw=times.horizon,
    ),
    Section(
        "forecasts",
        "Forecasts in numbers",
        "The same R² at some horizons: RP-GSSM, and whichever other method is best there. Below 0, the mean of the "
        "training data would have been the better forecast.",
        rows=tables.forecasts,
    ),
    Section(
        "accuracy-time",
        "Accuracy against training time",
        "Lines: mean linear R² on validation sequences during runs with the chosen settings; dots: on test sequences, "
        "with the model that was kept. Up is more accurate, left is quicker. A run that was not followed "
        "has a dot alone. Where a line rises at once at its end, "
        "head and chain were trained anew there (the second stage of a `Stack`). Time includes compilation, "
        "and depends on the machine and on what else it was doing (see the provenance).",
        draw=times.against_accuracy,
    ),
    Section(
        "time-per-step",
        "Time per training step",
        "All runs on the linear tasks, of all settings: mean and standard deviation. Left: milliseconds (logarithmic). "
        "Right: relative to the same method on the smallest task, that is, how it grows with size. A step of LGSSM-EM "
        "is one iteration over all data. Runs were made on one or two cores and beside other work, which the standard "
        "deviation contains; rpgssm-study speed train measures all methods under one condition.",
        draw=times.per_step,
    ),
    Section(
        "learning-curves",
        "Learning curves of the RP-GSSM",
        "The accuracy runs, a line per seed: mean linear R² on validation sequences while training goes on, or, for "
        "the linear tasks, loss on held-out sequences. Every panel has a scale of its own.",
        draw=times.learning_curves,
    ),
    Section(
        "hyperparameters",
        "The best settings found",
        "Chosen by the mean R² on validation sequences; by the protocol compact with the first seed, and the others "
        "repeat what was chosen. 'Competed' is the number of settings it was chosen from; others that were tried "
        "with fewer seeds, before the protocol had its present form, do not count. Settings that are not named are "
        "the estimator's defaults.",
        rows=tables.hyperparameters,
        folded=True,
    ),
    Section(
        "provenance",
        "Where every number comes from",
        "One line per run, in the order of the files in the folder of results. Each file holds more: all parameters, "
        "all scores, versions of packages.",
        rows=tables.provenance,
        folded=True,
    ),
)
