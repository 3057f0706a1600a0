/**
 * The schema of a database as SQL that makes it again, in an order that depends on names alone. The packaged
 * PostgreSQL has no `pg_dump`, and a dump that reviewers read needs nothing but tables, indexes and functions.
 */
import type { Client } from 'pg'

type Table = {
  oid: number
  name: string
  /** PARTITION BY …, or null. */
  partitioning: string | null
  parent: string | null
  /** FOR VALUES …, or null. */
  bound: string | null
  options: string | null
  comment: string | null
}

type Column = {
  table_oid: number
  name: string
  type: string
  not_null: boolean
  default_text: string | null
  identity: string
  generated: string
  storage: string | null
  collation: string | null
  comment: string | null
}

type Named = { table_oid: number; name: string; definition: string }

/** Extensions come with the server's own objects, which are no part of our schema. */
const NOT_OF_EXTENSION = (catalog: string, oid: string) =>
  `NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = '${catalog}'::regclass AND d.objid = ${oid} AND d.deptype = 'e')`

/**
 * A partition for a range of time. Retention creates and drops them as time passes, so they are not part of the schema:
 * a dump with them would differ from week to week.
 */
const IS_LEAF_OF_TIME = "(c.relispartition AND pg_get_expr(c.relpartbound, c.oid) LIKE 'FOR VALUES FROM %')"

const HEADER = `-- The schema that the migrations make, for reading. Written by \`npm run generate\`, never by hand; a change of the
-- schema is a new file in this folder.
`

/** Gives the dump of schema \`public\`. The ledger of migrations is left out: the program makes it, not a migration. */
export async function dumpSchema(client: Client): Promise<string> {
  await client.query("SELECT set_config('search_path', 'public', false)")
  const parts = [
    HEADER,
    ...(await dumpExtensions(client)),
    ...(await dumpTypes(client)),
    ...(await dumpSequences(client)),
    ...(await dumpFunctions(client)),
    ...(await dumpTables(client)),
    ...(await dumpForeignKeys(client)),
    ...(await dumpViewsAndTriggers(client)),
  ]
  return `${parts.join('\n')}`
}

async function dumpExtensions(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    "SELECT extname AS name FROM pg_extension WHERE extname <> 'plpgsql' ORDER BY extname",
  )
  return rows.map(({ name }) => `CREATE EXTENSION ${name};\n`)
}

async function dumpTypes(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string; labels: string }>(`
    SELECT t.typname AS name, string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder) AS labels
    FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid
    WHERE t.typnamespace = 'public'::regnamespace GROUP BY t.typname ORDER BY t.typname`)
  return rows.map(({ name, labels }) => `CREATE TYPE ${name} AS ENUM (${labels});\n`)
}

/** Sequences of identity columns belong to their column and are made with it. */
async function dumpSequences(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string; type: string; increment: number; start: number; cache: number }>(`
    SELECT c.relname AS name, format_type(s.seqtypid, NULL) AS type, s.seqincrement::int AS increment,
      s.seqstart::float8 AS start, s.seqcache::int AS cache
    FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
    WHERE c.relnamespace = 'public'::regnamespace
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('i', 'a'))
    ORDER BY c.relname`)
  return rows.map(({ name, type, increment, start, cache }) => {
    const unusual = [
      increment === 1 ? '' : ` INCREMENT ${increment}`,
      start === 1 ? '' : ` START ${start}`,
      cache === 1 ? '' : ` CACHE ${cache}`,
    ].join('')
    return `CREATE SEQUENCE ${name} AS ${type}${unusual};\n`
  })
}

async function dumpFunctions(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ definition: string }>(`
    SELECT pg_get_functiondef(p.oid) AS definition FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace AND ${NOT_OF_EXTENSION('pg_proc', 'p.oid')}
    ORDER BY p.proname, pg_get_function_identity_arguments(p.oid)`)
  return rows.map(({ definition }) => `${definition.replace('public.', '').trim()};\n`)
}

async function dumpTables(client: Client): Promise<string[]> {
  const { rows: tables } = await client.query<Table>(`
    SELECT c.oid::int, c.relname AS name,
      CASE WHEN c.relkind = 'p' THEN pg_get_partkeydef(c.oid) END AS partitioning,
      parent.relname AS parent, pg_get_expr(c.relpartbound, c.oid) AS bound,
      array_to_string(c.reloptions, ', ') AS options, quote_literal(obj_description(c.oid, 'pg_class')) AS comment
    FROM pg_class c
    LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class parent ON parent.oid = i.inhparent
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'migrations'
      AND ${NOT_OF_EXTENSION('pg_class', 'c.oid')} AND NOT ${IS_LEAF_OF_TIME}
    ORDER BY (parent.relname IS NOT NULL), c.relname`)
  const columns = grouped(await readColumns(client))
  const constraints = grouped(await readConstraints(client))
  const indexes = grouped(await readIndexes(client))
  return tables.map((table) =>
    table.parent === null
      ? dumpTable(table, columns.get(table.oid) ?? [], constraints.get(table.oid) ?? [], indexes.get(table.oid) ?? [])
      : `CREATE TABLE ${table.name} PARTITION OF ${table.parent} ${table.bound}${partitionBy(table)};\n`,
  )
}

const partitionBy = ({ partitioning }: Table) => (partitioning === null ? '' : ` PARTITION BY ${partitioning}`)

function dumpTable(table: Table, columns: Column[], constraints: Named[], indexes: Named[]): string {
  const lines = [
    ...columns.map(columnText),
    ...constraints.map(({ name, definition }) => `CONSTRAINT ${name} ${definition}`),
  ]
  const options = table.options === null || table.options === '' ? '' : ` WITH (${table.options})`
  return [
    `CREATE TABLE ${table.name} (`,
    lines.map((line) => `  ${line}`).join(',\n'),
    `)${partitionBy(table)}${options};`,
    // CREATE TABLE takes no storage before PostgreSQL 16.
    ...columns
      .filter((column) => column.storage !== null)
      .map((column) => `ALTER TABLE ${table.name} ALTER COLUMN ${column.name} SET STORAGE ${column.storage};`),
    ...(table.comment === null ? [] : [`COMMENT ON TABLE ${table.name} IS ${table.comment};`]),
    ...columns
      .filter((column) => column.comment !== null)
      .map((column) => `COMMENT ON COLUMN ${table.name}.${column.name} IS ${column.comment};`),
    ...indexes.map(({ definition }) => `${definition.replaceAll(/ ON (ONLY )?public\./g, ' ON ')};`),
    '',
  ].join('\n')
}

function columnText({ name, type, not_null, default_text, identity, generated, collation }: Column): string {
  const value =
    identity !== ''
      ? ` GENERATED ${identity === 'a' ? 'ALWAYS' : 'BY DEFAULT'} AS IDENTITY`
      : generated !== ''
        ? ` GENERATED ALWAYS AS (${default_text}) ${generated === 's' ? 'STORED' : 'VIRTUAL'}`
        : default_text === null
          ? ''
          : ` DEFAULT ${default_text}`
  return [
    name,
    ` ${type}`,
    collation === null ? '' : ` COLLATE "${collation}"`,
    not_null ? ' NOT NULL' : '',
    value,
  ].join('')
}

async function readColumns(client: Client): Promise<Column[]> {
  const { rows } = await client.query<Column>(`
    SELECT a.attrelid::int AS table_oid, quote_ident(a.attname) AS name, format_type(a.atttypid, a.atttypmod) AS type,
      a.attnotnull AS not_null, pg_get_expr(d.adbin, d.adrelid) AS default_text,
      a.attidentity AS identity, a.attgenerated AS generated,
      CASE WHEN a.attstorage <> t.typstorage THEN
        CASE a.attstorage WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' WHEN 'p' THEN 'PLAIN' ELSE 'EXTENDED' END END AS storage,
      CASE WHEN a.attcollation <> t.typcollation THEN co.collname END AS collation,
      quote_literal(col_description(a.attrelid, a.attnum)) AS comment
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_collation co ON co.oid = a.attcollation
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attrelid, a.attnum`)
  return rows
}

/** Primary keys first, then by name. Foreign keys come last of all, when every table is there. */
async function readConstraints(client: Client): Promise<Named[]> {
  const { rows } = await client.query<Named>(`
    SELECT conrelid::int AS table_oid, conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND contype IN ('p', 'u', 'c', 'x') AND conparentid = 0
    ORDER BY conrelid, (contype <> 'p'), conname`)
  return rows
}

/** Indexes that no constraint makes, on tables that are no partition: a partition gets them from its parent. */
async function readIndexes(client: Client): Promise<Named[]> {
  const { rows } = await client.query<Named>(`
    SELECT x.indrelid::int AS table_oid, c.relname AS name, pg_get_indexdef(x.indexrelid) AS definition
    FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
    WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
      AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = x.indexrelid AND k.contype IN ('p', 'u', 'x'))
    ORDER BY x.indrelid, c.relname`)
  return rows
}

async function dumpForeignKeys(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ table: string; name: string; definition: string }>(`
    SELECT c.relname AS table, k.conname AS name, pg_get_constraintdef(k.oid) AS definition
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
    WHERE k.connamespace = 'public'::regnamespace AND k.contype = 'f' AND k.conparentid = 0
    ORDER BY c.relname, k.conname`)
  if (rows.length === 0) return []
  const lines = rows.map(({ table, name, definition }) => `ALTER TABLE ${table} ADD CONSTRAINT ${name} ${definition};`)
  return [`${lines.join('\n')}\n`]
}

async function dumpViewsAndTriggers(client: Client): Promise<string[]> {
  const { rows: views } = await client.query<{ name: string; definition: string }>(`
    SELECT viewname AS name, definition FROM pg_views WHERE schemaname = 'public' ORDER BY viewname`)
  const { rows: triggers } = await client.query<{ definition: string }>(`
    SELECT pg_get_triggerdef(t.oid) AS definition FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'public'::regnamespace AND NOT t.tgisinternal ORDER BY c.relname, t.tgname`)
  return [
    ...views.map(({ name, definition }) => `CREATE VIEW ${name} AS\n${definition.trim()}\n`),
    ...triggers.map(({ definition }) => `${definition.replaceAll(' public.', ' ')};\n`),
  ]
}

function grouped<T extends { table_oid: number }>(rows: readonly T[]): Map<number, T[]> {
  const groups = new Map<number, T[]>()
  for (const row of rows) {
    const group = groups.get(row.table_oid)
    if (group === undefined) groups.set(row.table_oid, [row])
    else group.push(row)
  }
  return groups
}
