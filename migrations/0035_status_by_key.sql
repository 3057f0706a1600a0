-- expand: to count what somebody has roles on himself, every row was opened for its status

CREATE INDEX clients_status_by_key ON clients (key) INCLUDE (status);
CREATE INDEX channels_status_by_key ON channels (key) INCLUDE (status);
