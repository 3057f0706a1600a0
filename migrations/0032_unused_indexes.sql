-- expand: an index by name that no listing reads any more, and that each creation wrote

-- Names are found by those of 0028: of up to 256 characters by the name, of more by their beginning.
DROP INDEX clients_page_name;
DROP INDEX channels_page_name;
DROP INDEX groups_page_name;
