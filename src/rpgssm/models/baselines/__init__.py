"""The models that the RP-GSSM is compared with."""
