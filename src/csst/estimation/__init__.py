"""What can be said from few labels and many unlabeled rows: calibration, class balance, class rates."""
