/**
 * SQL of bootstrap configurations. Names and metadata of channels are read from the channels, and the state of a
 * configuration is derived from its connections, so that changes of either need no update here.
 */
import { allOf, contains } from '#api/identity/index.ts'
import type { DomainAccess } from '#api/identity/index.ts'
import { Keyset, prepared, readPage, refusing } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { takenField } from '#core/errors/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { BindingType } from '../profiles/index.ts'

export type BootstrapChannel = { id: string; name: string; metadata: Record<string, unknown> }

export type BootstrapConfig = {
  domainKey: number
  domainId: string
  clientKey: number
  clientId: string
  parentGroupKey: number | null
  /** Sealed secret of the client. */
  secretSealed: Buffer
  externalId: string
  externalKeyMac: Buffer
  externalKeySealed: Buffer
  name: string
  content: string
  clientCert: string
  privateKeySealed: Buffer | null
  caCert: string
  isActive: boolean
  /** Devices with its external id and key are served the configuration of another domain. */
  isWaiting: boolean
  channels: BootstrapChannel[]
  profileKey: number | null
  profileId: string | null
  /** Variables of this device, sealed JSON. */
  renderContextSealed: Buffer | null
}

type Row = {
  domain_key: number
  domain_id: string
  client_key: number
  client_id: string
  parent_group_key: number | null
  secret_sealed: Buffer
  external_id: string
  external_key_mac: Buffer
  external_key_sealed: Buffer
  name: string
  content: string
  client_cert: string
  client_private_key_sealed: Buffer | null
  ca_cert: string
  is_active: boolean
  is_waiting: boolean
  channels: BootstrapChannel[]
  profile_key: number | null
  profile_id: string | null
  render_context_sealed: Buffer | null
}

/** Both directions (contract 9.1: an active configuration is connected with both types to all its channels). */
const BOTH = 3

const IS_ACTIVE = sql<boolean>`(b.is_enabled AND NOT EXISTS (
  SELECT FROM bootstrap_channels w LEFT JOIN connections n ON n.client_key = w.client_key AND n.channel_key = w.channel_key
   WHERE w.client_key = b.client_key AND n.types IS DISTINCT FROM ${BOTH}))`

/**
 * The place among configurations with the same external id and key, in several domains: a device is served the first. Enabled ones come
 * before others, and those of a disabled client or domain last; among equals the oldest, whose owner had the device before.
 */
const placeOf = (config: string, client: string, domain: string) =>
  sql`(CASE WHEN ${sql.ref(`${client}.status`)} <> 'enabled' OR ${sql.ref(`${domain}.status`)} <> 'enabled' THEN 2
    WHEN ${sql.ref(`${config}.is_enabled`)} THEN 0 ELSE 1 END), ${sql.ref(`${config}.created_at`)}, ${sql.ref(`${config}.client_key`)}`

/** Whether devices with its external id and key are served the configuration of another domain. */
const IS_WAITING = sql<boolean>`EXISTS (
  SELECT FROM bootstrap_configs o JOIN clients oc ON oc.key = o.client_key JOIN domains od ON od.key = o.domain_key
   WHERE o.external_id = b.external_id AND o.external_key_mac = b.external_key_mac AND o.client_key <> b.client_key
     AND (${placeOf('o', 'oc', 'od')}) < (${placeOf('b', 'c', 'd')}))`

const COLUMNS = sql`b.domain_key, d.id AS domain_id, b.client_key, c.id AS client_id, c.parent_group_key, c.secret_sealed, b.external_id,
  b.external_key_mac, b.external_key_sealed, b.name, b.content, b.client_cert, b.client_private_key_sealed, b.ca_cert,
  ${IS_ACTIVE} AS is_active, ${IS_WAITING} AS is_waiting, b.profile_key, p.id AS profile_id, b.render_context_sealed,
  (SELECT coalesce(jsonb_agg(jsonb_build_object('id', h.id, 'name', h.name, 'metadata', h.metadata) ORDER BY w.ordinal), '[]')
     FROM bootstrap_channels w JOIN channels h ON h.key = w.channel_key WHERE w.client_key = b.client_key) AS channels`

const FROM = sql`bootstrap_configs b JOIN clients c ON c.key = b.client_key JOIN domains d ON d.key = b.domain_key
  LEFT JOIN bootstrap_profiles p ON p.key = b.profile_key`

const fromRow = (row: Row): BootstrapConfig => ({
  domainKey: row.domain_key,
  domainId: row.domain_id,
  clientKey: row.client_key,
  clientId: row.client_id,
  parentGroupKey: row.parent_group_key,
  secretSealed: row.secret_sealed,
  externalId: row.external_id,
  externalKeyMac: row.external_key_mac,
  externalKeySealed: row.external_key_sealed,
  name: row.name,
  content: row.content,
  clientCert: row.client_cert,
  privateKeySealed: row.client_private_key_sealed,
  caCert: row.ca_cert,
  isActive: row.is_active,
  isWaiting: row.is_waiting,
  channels: row.channels,
  profileKey: row.profile_key,
  profileId: row.profile_id,
  renderContextSealed: row.render_context_sealed,
})

const CONFLICTS = {
  bootstrap_configs_pkey: () =>
    takenField('/client_id', 'the client already has a bootstrap configuration', 'already has a configuration'),
  bootstrap_configs_external_id_key: () =>
    takenField('/external_id', 'a bootstrap configuration with this external id exists in the domain'),
}

export type NewConfigRow = {
  clientKey: number
  domainKey: number
  externalId: string
  externalKeyMac: Buffer
  externalKeySealed: Buffer
  name: string
  content: string
  clientCert: string
  privateKeySealed: Buffer | null
  caCert: string
  isEnabled: boolean
  profileKey: number | null
  renderContextSealed: Buffer | null
  createdBy: string
}

const INSERT = prepared(
  'insert_bootstrap_config',
  `WITH made AS (
     INSERT INTO bootstrap_configs (client_key, domain_key, external_id, external_key_mac, external_key_sealed, name, content, client_cert,
                                    client_private_key_sealed, ca_cert, is_enabled, profile_key, render_context_sealed, created_by)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) RETURNING client_key)
   INSERT INTO bootstrap_channels (client_key, channel_key, ordinal)
   SELECT client_key, key, ordinal FROM made, unnest($15::bigint[]) WITH ORDINALITY AS list (key, ordinal) ORDER BY key`,
)

/** Inserts the configuration with its channels in this order. */
export async function insertConfig(tx: Transaction, row: NewConfigRow, channelKeys: readonly number[]): Promise<void> {
  await refusing(
    CONFLICTS,
    INSERT(tx, [
      row.clientKey,
      row.domainKey,
      row.externalId,
      row.externalKeyMac,
      row.externalKeySealed,
      row.name,
      row.content,
      row.clientCert,
      row.privateKeySealed,
      row.caCert,
      row.isEnabled,
      row.profileKey,
      row.renderContextSealed,
      row.createdBy,
      channelKeys,
    ]),
  )
}

/** Replaces the channels of a configuration, in this order. */
export async function setChannels(tx: Transaction, clientKey: number, channelKeys: readonly number[]): Promise<void> {
  await sql`DELETE FROM bootstrap_channels WHERE client_key = ${clientKey} AND channel_key <> ALL (${channelKeys}::bigint[])`.execute(
    tx,
  )
  await sql`INSERT INTO bootstrap_channels (client_key, channel_key, ordinal)
    SELECT ${clientKey}, key, ordinal FROM unnest(${channelKeys}::bigint[]) WITH ORDINALITY AS list (key, ordinal) ORDER BY key
    ON CONFLICT ON CONSTRAINT bootstrap_channels_pkey DO UPDATE SET ordinal = EXCLUDED.ordinal`.execute(tx)
}

/**
 * Returns the clients or channels of the domain on which the caller has the action, by id, locked against deletion
 * until the transaction ends.
 */
export async function findKeys(
  tx: Queryable,
  domain: DomainAccess,
  type: BindingType,
  ids: readonly string[],
  action: string,
): Promise<Map<string, number>> {
  const { rows } = await sql<{ key: number; id: string }>`SELECT e.key, e.id FROM ${sql.table(`${type}s`)} e
    WHERE e.domain_key = ${domain.domainKey} AND e.id = ANY (${ids}::uuid[]) AND ${domain.reachable(type, action, 'e')}
    ORDER BY e.key FOR KEY SHARE OF e`.execute(tx)
  return new Map(rows.map((row) => [row.id, row.key]))
}

export async function setProfile(
  tx: Transaction,
  clientKey: number,
  profileKey: number | null,
  updatedBy: string,
): Promise<void> {
  await sql`UPDATE bootstrap_configs SET profile_key = ${profileKey}, updated_by = ${updatedBy}, updated_at = now()
    WHERE client_key = ${clientKey}`.execute(tx)
}

export type ConfigChange = {
  name?: string
  externalKeyMac?: Buffer
  externalKeySealed?: Buffer
  renderContextSealed?: Buffer | null
  content?: string
  clientCert?: string
  privateKeySealed?: Buffer
  caCert?: string
  isEnabled?: boolean
}

export async function updateConfig(
  tx: Transaction,
  clientKey: number,
  change: ConfigChange,
  updatedBy: string,
): Promise<void> {
  const sets = [
    ...(change.name === undefined ? [] : [sql`name = ${change.name}`]),
    ...(change.content === undefined ? [] : [sql`content = ${change.content}`]),
    ...(change.clientCert === undefined ? [] : [sql`client_cert = ${change.clientCert}`]),
    ...(change.privateKeySealed === undefined ? [] : [sql`client_private_key_sealed = ${change.privateKeySealed}`]),
    ...(change.caCert === undefined ? [] : [sql`ca_cert = ${change.caCert}`]),
    ...(change.isEnabled === undefined ? [] : [sql`is_enabled = ${change.isEnabled}`]),
    ...(change.externalKeyMac === undefined ? [] : [sql`external_key_mac = ${change.externalKeyMac}`]),
    ...(change.externalKeySealed === undefined ? [] : [sql`external_key_sealed = ${change.externalKeySealed}`]),
    ...(change.renderContextSealed === undefined ? [] : [sql`render_context_sealed = ${change.renderContextSealed}`]),
    sql`updated_by = ${updatedBy}, updated_at = now()`,
  ]
  await refusing(
    CONFLICTS,
    sql`UPDATE bootstrap_configs SET ${sql.join(sets)} WHERE client_key = ${clientKey}`.execute(tx),
  )
}

export async function removeConfig(tx: Transaction, clientKey: number): Promise<boolean> {
  const { numAffectedRows } = await sql`DELETE FROM bootstrap_configs WHERE client_key = ${clientKey}`.execute(tx)
  return numAffectedRows === 1n
}

/** Locks the configuration until the transaction ends, so that changes of its connections are serialized. */
export async function lockConfig(tx: Transaction, clientKey: number): Promise<BootstrapConfig | undefined> {
  await sql`SELECT FROM bootstrap_configs WHERE client_key = ${clientKey} FOR UPDATE`.execute(tx)
  return await findConfig(tx, clientKey)
}

export async function findConfig(db: Queryable, clientKey: number): Promise<BootstrapConfig | undefined> {
  const { rows } = await sql<Row>`SELECT ${COLUMNS} FROM ${FROM} WHERE b.client_key = ${clientKey}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

/** A configuration with this external id. `isEnabled`: its domain and client are enabled. */
export type ExternalMatch = {
  domainKey: number
  clientKey: number
  clientId: string
  externalKeyMac: Buffer
  isEnabled: boolean
}

/** Domains can use the same external ids. More than this number is an attack or an accident. */
const MAX_MATCHES = 100

/** Configurations with this external id: those with the key first, in the order in which a device is served them. */
export async function findByExternalId(
  db: Queryable,
  externalId: string,
  externalKeyMac: Buffer,
): Promise<ExternalMatch[]> {
  type Found = Pick<Row, 'domain_key' | 'client_key' | 'client_id' | 'external_key_mac'> & { is_enabled: boolean }
  const { rows } = await sql<Found>`
    SELECT b.domain_key, b.client_key, c.id AS client_id, b.external_key_mac,
           c.status = 'enabled' AND d.status = 'enabled' AS is_enabled
      FROM ${FROM} WHERE b.external_id = ${externalId}
     ORDER BY b.external_key_mac = ${externalKeyMac} DESC, ${placeOf('b', 'c', 'd')} LIMIT ${MAX_MATCHES}`.execute(db)
  return rows.map((row) => ({
    domainKey: row.domain_key,
    clientKey: row.client_key,
    clientId: row.client_id,
    externalKeyMac: row.external_key_mac,
    isEnabled: row.is_enabled,
  }))
}

export type ConfigFilter = {
  state?: number | undefined
  name?: string | undefined
  externalId?: string | undefined
  clientId?: string | undefined
  channelId?: string | undefined
  profileId?: string | undefined
}

export async function listConfigs(
  db: Queryable,
  {
    domainKey,
    permitted,
    filter,
    ...range
  }: PageRange & {
    domainKey: number
    /** Condition with the alias `c` for the client. */
    permitted: Sql<boolean>
    filter: ConfigFilter
  },
): Promise<{ total: number; configs: BootstrapConfig[]; next: PageEnd }> {
  const where = allOf([
    sql<boolean>`b.domain_key = ${domainKey}`,
    permitted,
    ...(filter.state === undefined ? [] : [sql<boolean>`${IS_ACTIVE} = ${filter.state === 1}`]),
    ...(filter.name === undefined ? [] : [contains('b.name', filter.name)]),
    ...(filter.externalId === undefined ? [] : [sql<boolean>`b.external_id = ${filter.externalId}`]),
    ...(filter.clientId === undefined ? [] : [sql<boolean>`c.id::text = ${filter.clientId}`]),
    ...(filter.profileId === undefined ? [] : [sql<boolean>`p.id::text = ${filter.profileId}`]),
    ...(filter.channelId === undefined
      ? []
      : [
          sql<boolean>`EXISTS (SELECT FROM bootstrap_channels w JOIN channels h ON h.key = w.channel_key
            WHERE w.client_key = b.client_key AND h.id::text = ${filter.channelId})`,
        ]),
  ])
  const { rows: counted } = await sql<{ total: number }>`SELECT count(*) AS total FROM ${FROM} WHERE ${where}`.execute(
    db,
  )
  const joined = { alias: 'b', key: 'client_key' }
  const { rows, next } = await readPage<Row>(
    db,
    { columns: COLUMNS, from: FROM, where, keyset: OLDEST_FIRST, joined },
    range,
  )
  return { total: counted[0]?.total ?? 0, configs: rows.map(fromRow), next }
}

const OLDEST_FIRST = new Keyset([
  { by: sql`b.created_at`, type: 'time' },
  { by: sql`b.client_key`, type: 'number' },
])
