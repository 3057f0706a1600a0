/** Schemas of the members `manifest.json`, before the rows, and `counts.json`, after them. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Compile } from 'typebox/compile'

/** Names that are quoted as identifiers in statements. */
const Name = Type.String({ pattern: '^[a-z_][a-z0-9_]*$', maxLength: 63 })
const Whole = Type.String({ pattern: '^-?[0-9]{1,19}$' })

const Manifest = Type.Object({
  format: Type.Literal('skein backup'),
  format_version: Type.Integer({ minimum: 1 }),
  /** Version of Skein that wrote the file. */
  skein_version: Type.String(),
  /** Time of the snapshot: everything that was committed before is in the backup. */
  taken_at: Type.String(),
  /** The applied migrations of the database, in order. */
  migrations: Type.Array(Type.Object({ name: Type.String(), digest: Type.String() }), { minItems: 1 }),
  /** A fingerprint of the secret key, which does not reveal it; null: the database was never used with one. */
  secret_key_fingerprint: Type.Union([Type.String(), Type.Null()]),
  tables: Type.Array(Type.Object({ name: Name, columns: Type.Array(Name, { minItems: 1 }) })),
  /** Partitions by time, which are not created by migrations. */
  partitions: Type.Array(
    Type.Object({
      parent: Name,
      name: Name,
      bound: Type.String({ pattern: "^FOR VALUES FROM \\('[0-9: +-]+'\\) TO \\('[0-9: +-]+'\\)$" }),
      fillfactor: Type.Integer({ minimum: 10, maximum: 100 }),
    }),
  ),
  /** Including the sequences of identity columns. */
  sequences: Type.Array(Type.Object({ name: Name, value: Whole, is_called: Type.Boolean() })),
})
export type Manifest = Static<typeof Manifest>

/** Rows by table. */
const Counts = Type.Object({ rows: Type.Array(Type.Object({ name: Name, rows: Type.Integer() })) })
export type Counts = Static<typeof Counts>

const FormatVersion = Type.Object({ format: Type.Literal('skein backup'), format_version: Type.Integer() })

/** Returns whether the value matches the schema. */
export const isMarked = (value: unknown): value is Static<typeof FormatVersion> => Compile(FormatVersion).Check(value)
export const isManifest = (value: unknown): value is Manifest => Compile(Manifest).Check(value)
export const isCounts = (value: unknown): value is Counts => Compile(Counts).Check(value)
