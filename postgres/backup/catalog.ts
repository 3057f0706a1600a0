/** Names and catalogs of PostgreSQL. */

/** A name as an identifier in a statement. */
export const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`

/** Condition on a row `c` of pg_class: it does not belong to an extension. */
export const NO_EXTENSION_MEMBER =
  "NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')"
