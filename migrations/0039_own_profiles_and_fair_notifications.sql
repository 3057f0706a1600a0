-- expand: profiles have actions of their own
UPDATE roles SET actions = actions || ARRAY(
    SELECT added FROM unnest(ARRAY['profile_create', 'profile_read', 'profile_update', 'profile_delete']) AS added
     WHERE added <> ALL (actions))
 WHERE entity_type = 'domain' AND name = 'editor' AND 'client_create' = ANY (actions);
