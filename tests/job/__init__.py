"""One job: its report, what ids mean, Slurm's records, Jobstats' summaries, e-mails."""
