SELECT COUNT(*) FROM {entry};
