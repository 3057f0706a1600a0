-- expand: placeholder of a migration that is written elsewhere
SELECT 1;
