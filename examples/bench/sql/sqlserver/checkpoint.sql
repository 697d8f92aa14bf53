-- Lets no run pay for what another has written.
CHECKPOINT;
