"""Estimators of the methods that the RP-GSSM is compared with."""
