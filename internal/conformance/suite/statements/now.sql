SELECT {now_ms};
