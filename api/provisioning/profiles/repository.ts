/** SQL of profiles and of the bindings of their slots. */
import { allOf, contains } from '#api/identity/index.ts'
import type { DomainAccess } from '#api/identity/index.ts'
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { BindingSlot, BindingType, ContentFormat, ContentType } from './schema.ts'

export type Profile = {
  key: number
  id: string
  domainKey: number
  name: string
  description: string
  contentFormat: ContentFormat
  contentType: ContentType
  contentTemplate: string
  defaults: Record<string, unknown>
  bindingSlots: BindingSlot[]
  version: number
  createdAt: Date
  updatedAt: Date | null
}

/** The fields of a profile that users set. */
export type ProfileFields = Pick<
  Profile,
  'name' | 'description' | 'contentFormat' | 'contentType' | 'contentTemplate' | 'defaults' | 'bindingSlots'
>

const COLUMNS = sql`p.key, p.id, p.domain_key AS "domainKey", p.name, p.description, p.content_format AS "contentFormat",
  p.content_type AS "contentType", p.content_template AS "contentTemplate", p.defaults, p.binding_slots AS "bindingSlots",
  p.version, p.created_at AS "createdAt", p.updated_at AS "updatedAt"`

export async function insertProfile(
  tx: Transaction,
  row: ProfileFields & { id: string; domainKey: number; createdBy: string },
): Promise<Profile> {
  const { rows } =
    await sql<Profile>`INSERT INTO bootstrap_profiles AS p (id, domain_key, name, description, content_format,
      content_type, content_template, defaults, binding_slots, created_by)
    VALUES (${row.id}, ${row.domainKey}, ${row.name}, ${row.description}, ${row.contentFormat}, ${row.contentType},
      ${row.contentTemplate}, ${JSON.stringify(row.defaults)}::jsonb, ${JSON.stringify(row.bindingSlots)}::jsonb, ${row.createdBy})
    RETURNING ${COLUMNS}`.execute(tx)
  const [made] = rows
  if (made === undefined) throw new Error('the insert returned no profile')
  return made
}

export async function updateProfile(
  tx: Transaction,
  key: number,
  row: ProfileFields,
  updatedBy: string,
): Promise<Profile> {
  const { rows } =
    await sql<Profile>`UPDATE bootstrap_profiles AS p SET name = ${row.name}, description = ${row.description},
      content_format = ${row.contentFormat}, content_type = ${row.contentType}, content_template = ${row.contentTemplate},
      defaults = ${JSON.stringify(row.defaults)}::jsonb, binding_slots = ${JSON.stringify(row.bindingSlots)}::jsonb,
      version = p.version + 1, updated_by = ${updatedBy}, updated_at = now()
    WHERE p.key = ${key} RETURNING ${COLUMNS}`.execute(tx)
  const [changed] = rows
  if (changed === undefined) throw new Error('the locked profile does not exist')
  return changed
}

export async function deleteProfile(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM bootstrap_profiles WHERE key = ${key}`.execute(tx)
}

/** Lock of the row until the transaction ends, or none. */
export type ProfileLock = 'change' | 'use' | undefined

export async function findProfile(
  db: Queryable,
  domainKey: number,
  id: string,
  lock?: ProfileLock,
): Promise<Profile | undefined> {
  const locking = lock === undefined ? sql`` : lock === 'change' ? sql`FOR UPDATE OF p` : sql`FOR KEY SHARE OF p`
  const { rows } = await sql<Profile>`SELECT ${COLUMNS} FROM bootstrap_profiles p
    WHERE p.domain_key = ${domainKey} AND p.id = ${id} ${locking}`.execute(db)
  return rows[0]
}

export async function findProfileByKey(db: Queryable, key: number): Promise<Profile | undefined> {
  const { rows } = await sql<Profile>`SELECT ${COLUMNS} FROM bootstrap_profiles p WHERE p.key = ${key}`.execute(db)
  return rows[0]
}

export async function listProfiles(
  db: Queryable,
  { domainKey, name, ...range }: PageRange & { domainKey: number; name: string | undefined },
): Promise<{ total: number; profiles: Profile[]; next: PageEnd }> {
  const where = allOf([
    sql<boolean>`p.domain_key = ${domainKey}`,
    ...(name === undefined ? [] : [contains('p.name', name)]),
  ])
  const { rows: counted } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM bootstrap_profiles p WHERE ${where}`.execute(db)
  const source = { columns: COLUMNS, from: sql`bootstrap_profiles p`, where, keyset: OLDEST_FIRST }
  const { rows, next } = await readPage<Profile>(db, source, range)
  return { total: counted[0]?.total ?? 0, profiles: rows, next }
}

const OLDEST_FIRST = new Keyset([
  { by: sql`p.created_at`, type: 'time' },
  { by: sql`p.key`, type: 'number' },
])

export async function countUses(tx: Transaction, key: number): Promise<number> {
  const { rows } = await sql<{
    uses: number
  }>`SELECT count(*) AS uses FROM bootstrap_configs WHERE profile_key = ${key}`.execute(tx)
  return rows[0]?.uses ?? 0
}

/** The configurations of a profile, or one configuration. */
export type Enrolled = { profileKey: number } | { configKey: number }

/** True when the caller has no `update` on one of the clients that are enrolled or bound to a slot. */
export async function concernsOtherClients(tx: Transaction, domain: DomainAccess, of: Enrolled): Promise<boolean> {
  const which =
    'profileKey' in of ? sql<boolean>`b.profile_key = ${of.profileKey}` : sql<boolean>`b.client_key = ${of.configKey}`
  const { rows } = await sql<{ found: boolean }>`
    WITH concerned AS (
      SELECT b.client_key AS key FROM bootstrap_configs b WHERE ${which}
      UNION SELECT n.client_key FROM bootstrap_bindings n JOIN bootstrap_configs b ON b.client_key = n.config_key
       WHERE ${which} AND n.client_key IS NOT NULL
    )
    SELECT EXISTS (SELECT FROM clients c WHERE c.key IN (SELECT key FROM concerned)
      AND (${domain.reachable('client', 'update', 'c', 'row')}) IS NOT TRUE) AS found`.execute(tx)
  return rows[0]?.found !== false
}

/** A slot of a configuration and its binding. A client has its sealed secret. */
export type Binding = {
  slot: string
  type: BindingType
  resourceId: string
  snapshot: Record<string, unknown>
  domainKey: number
  secretSealed: Buffer | null
  updatedAt: Date
}

export async function findBindings(db: Queryable, configKey: number): Promise<Binding[]> {
  const { rows } =
    await sql<Binding>`SELECT b.slot, CASE WHEN b.client_key IS NULL THEN 'channel' ELSE 'client' END AS type,
      coalesce(c.id, h.id) AS "resourceId", d.key AS "domainKey", c.secret_sealed AS "secretSealed", b.updated_at AS "updatedAt",
      jsonb_strip_nulls(CASE WHEN b.client_key IS NULL
        THEN jsonb_build_object('id', h.id, 'name', h.name, 'topic', h.route, 'domain_id', d.id)
        ELSE jsonb_build_object('id', c.id, 'name', c.name, 'identity', nullif(c.identity, ''), 'domain_id', d.id) END)
        || jsonb_build_object('metadata', coalesce(c.metadata, h.metadata)) AS snapshot
    FROM bootstrap_bindings b LEFT JOIN clients c ON c.key = b.client_key LEFT JOIN channels h ON h.key = b.channel_key
    JOIN domains d ON d.key = coalesce(c.domain_key, h.domain_key)
    WHERE b.config_key = ${configKey} ORDER BY b.slot`.execute(db)
  return rows
}

export type BoundSlot = { slot: string; type: BindingType; resourceKey: number }

/** Sets the bindings of these slots. Other slots are unchanged. */
export async function setBindings(
  tx: Transaction,
  configKey: number,
  bound: readonly BoundSlot[],
  updatedBy: string,
): Promise<void> {
  const keyOf = (type: BindingType) => bound.map((one) => (one.type === type ? one.resourceKey : null))
  await sql`INSERT INTO bootstrap_bindings (config_key, slot, client_key, channel_key, updated_by)
    SELECT ${configKey}, slot, client_key, channel_key, ${updatedBy}
      FROM unnest(${bound.map(({ slot }) => slot)}::text[], ${keyOf('client')}::bigint[], ${keyOf('channel')}::bigint[])
        AS given (slot, client_key, channel_key) ORDER BY slot
    ON CONFLICT ON CONSTRAINT bootstrap_bindings_pkey DO UPDATE SET client_key = EXCLUDED.client_key,
      channel_key = EXCLUDED.channel_key, updated_by = EXCLUDED.updated_by, updated_at = now()`.execute(tx)
}

export async function removeBinding(tx: Transaction, configKey: number, slot: string): Promise<boolean> {
  const { numAffectedRows } =
    await sql`DELETE FROM bootstrap_bindings WHERE config_key = ${configKey} AND slot = ${slot}`.execute(tx)
  return numAffectedRows === 1n
}

/** Records the time of a refresh. */
export async function touchBindings(tx: Transaction, configKey: number, updatedBy: string): Promise<void> {
  await sql`UPDATE bootstrap_bindings SET updated_by = ${updatedBy}, updated_at = now() WHERE config_key = ${configKey}`.execute(
    tx,
  )
}
