"""What the subcommands of `rpgssm` do, and their settings (`config`, which imports nothing heavy)."""
