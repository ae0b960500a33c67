"""The subcommands of `rpgssm-study`, and their settings (`settings`, which imports nothing heavy)."""
