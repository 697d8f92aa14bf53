CREATE TABLE {effects} (id INT NOT NULL);
