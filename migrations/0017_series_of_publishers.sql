-- expand: the series of a client, for the newest values in a list of clients
CREATE INDEX series_publisher ON series USING btree (publisher_key) WHERE publisher_key IS NOT NULL;
