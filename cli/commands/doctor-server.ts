/** What `skein doctor` says about the programs and their database: where, what is wrong, and what to do. */
import { isIP } from 'node:net'
import { connect } from 'node:tls'
import type { Cli } from '../shared/command.ts'
import { RefusedError } from '../shared/failures.ts'
import type { ServiceName } from '../shared/services.ts'
import { isRecord, plainText } from '../shared/values.ts'
import type { Print } from './doctor-findings.ts'

const DEADLINE_MS = 5000
const CERTIFICATE_WARNING_DAYS = 14
const DAY_MS = 86_400_000
/** Readers of the changelog wait for a transaction that writes for longer. */
const MAX_WRITE_SECONDS = 60
const MAX_LAG_BYTES = 64 * 1024 * 1024
const GIB = 1024 ** 3

/** What to do about a check of `GET /ready`. */
const REMEDIES: Readonly<Record<string, string>> = {
  database: 'check that PostgreSQL runs and that SKEIN_DATABASE_URL is right: docs/guides/external-database.md',
  changelog: 'look for a long transaction or an overloaded database: docs/guides/external-database.md',
  redis: 'check that Redis runs and that SKEIN_REDIS_URL is right; everything goes on without it, a little later',
  disk: 'make room on the disk of SKEIN_DATA_DIR; messages are taken again by themselves',
  proxy: 'start the module proxy, and check SKEIN_PROXY_ADDRESS of the task manager: docs/guides/modules.md',
  workers: 'start a worker: docs/guides/join-a-worker.md',
  token: 'set SKEIN_PROXY_TOKEN_FILE at the task manager and the module proxy',
  manager: 'start the task manager, and check SKEIN_PROXY_MANAGER_URL of the module proxy',
  program: 'wait for its restart; a stop that was not asked for has a reason in the log of the program',
}

/** A finding for every check of the program at this address that is not ready. */
export async function checkReadiness(cli: Cli, service: ServiceName, url: string, print: Print): Promise<void> {
  const reply = await cli.request({
    method: 'GET',
    service,
    path: service === 'http' ? '/../ready' : '/ready',
    authorization: 'none',
    deadlineMs: DEADLINE_MS,
    accepts: [503],
  })
  const report = isRecord(reply.value) ? reply.value : {}
  const checks = Object.entries(isRecord(report['checks']) ? report['checks'] : {})
  for (const [name, check] of checks) {
    // Workers have a finding of their own.
    if (!isRecord(check) || check['status'] === 'ready' || name === 'workers') continue
    const reason = plainText(check['reason'], 'no reason given')
    print({
      verdict: check['status'] === 'unavailable' ? 'error' : 'warning',
      what: `${url}: ${name}: ${reason} (since ${plainText(check['since'], 'unknown')})`,
      hint: REMEDIES[name],
    })
  }
  if (report['status'] === 'ready')
    print({ verdict: 'ok', what: `${url} is ready: ${checks.map(([name]) => name).join(', ')}` })
}

/** Checks when the certificate of an HTTPS address ends. */
export async function checkCertificate(address: string, print: Print): Promise<void> {
  const { protocol, hostname, port } = new URL(address)
  if (protocol !== 'https:') return
  const host = hostname.replace(/^\[|\]$/g, '')
  const until = await new Promise<number>((resolve) => {
    // Only its end is read; whether it is trusted is found out by the request itself.
    const socket = connect(
      {
        host,
        port: Number(port || 443),
        ...(isIP(host) === 0 ? { servername: host } : {}),
        rejectUnauthorized: false,
        timeout: DEADLINE_MS,
      },
      () => {
        resolve(Date.parse(socket.getPeerCertificate().valid_to))
        socket.destroy()
      },
    )
    socket.once('timeout', () => socket.destroy())
    socket.once('error', () => undefined)
    socket.once('close', () => resolve(Number.NaN))
  })
  if (Number.isNaN(until)) return
  const days = Math.floor((until - Date.now()) / DAY_MS)
  const what = `the certificate of ${address} ${days < 0 ? 'expired' : 'is valid until'} ${new Date(until).toISOString().slice(0, 10)}`
  const hint = 'renew it: the files are read again without a restart (docs/guides/run-it-for-real.md)'
  print(
    days >= CERTIFICATE_WARNING_DAYS
      ? { verdict: 'ok', what }
      : { verdict: days < 0 ? 'error' : 'warning', what, hint },
  )
}

/** A backup that is made each week is not older. */
const MAX_BACKUP_AGE_DAYS = 8
/** `archive_timeout` is usually minutes; a server that nobody writes to archives less often. */
const MAX_ARCHIVE_AGE_DAYS = 1

const gib = (bytes: unknown) => `${(Number(bytes) / GIB).toFixed(1)} GiB`
const recordsOf = (value: unknown) => (Array.isArray(value) ? value.filter(isRecord) : [])
const recordOf = (value: unknown) => (isRecord(value) ? value : {})

/** Only a platform administrator sees the database. Other callers, and a login that has failed already, get no finding. */
export async function checkDatabase(cli: Cli, print: Print): Promise<void> {
  let found: Record<string, unknown>
  try {
    const { value } = await cli.request({
      method: 'GET',
      service: 'users',
      path: '/health/database',
      deadlineMs: DEADLINE_MS,
    })
    found = recordOf(value)
  } catch (error) {
    if (error instanceof RefusedError && [401, 403, 404].includes(error.status)) return
    return print({ verdict: 'error', what: `database: ${(error as Error).message}`, hint: REMEDIES['database'] })
  }
  const settings = recordOf(found['settings'])
  const disk = recordOf(found['disk'])
  const room =
    disk['free_bytes'] === undefined ? '' : `, ${gib(disk['free_bytes'])} of ${gib(disk['total_bytes'])} free`
  const kind = found['is_embedded'] === true ? 'embedded PostgreSQL' : 'PostgreSQL'
  print({ verdict: 'ok', what: `${kind} ${plainText(found['version'])}, ${gib(found['size_bytes'])}${room}` })
  checkDurability(found, settings, print)
  checkMigrations(found, print)
  checkBackups(recordOf(found['backups']), print)
  if (isRecord(found['history'])) checkHistory(found['history'], print)
  const write = recordOf(found['oldest_write'])
  if (Number(write['seconds'] ?? 0) > MAX_WRITE_SECONDS)
    print({
      verdict: 'warning',
      what: `database: a transaction of "${plainText(write['application'])}" has been writing for ${Math.round(Number(write['seconds']))} s`,
      hint: 'caches and triggers wait for it: find it in pg_stat_activity, and end it with pg_terminate_backend if it is not needed',
    })
}

function checkDurability(found: Record<string, unknown>, settings: Record<string, unknown>, print: Print): void {
  if (found['is_replica'] === true)
    print({
      verdict: 'error',
      what: 'database: the server is a replica and cannot be written to',
      hint: 'let SKEIN_DATABASE_URL lead to the primary',
    })
  const off = ['fsync', 'full_page_writes', 'synchronous_commit'].filter((name) => settings[name] === 'off')
  if (off.length > 0)
    print({
      verdict: 'error',
      what: `database: ${off.join(', ')} off: a crash loses acknowledged messages`,
      hint: 'set them to on in postgresql.conf and remove SKEIN_DATABASE_UNSAFE',
    })
  const standbys = recordsOf(found['standbys'])
  const isSynchronous = plainText(settings['synchronous_standby_names'], '') !== ''
  const commit = plainText(settings['synchronous_commit'], 'unknown')
  if (isSynchronous && commit === 'local')
    print({
      verdict: 'warning',
      what: 'database: synchronous_standby_names is set, and synchronous_commit=local does not wait for standbys',
      hint: 'set synchronous_commit=on: a failover loses acknowledged messages otherwise',
    })
  for (const { name, state, lag_bytes: lag } of standbys) {
    if (state === 'streaming' && Number(lag ?? 0) <= MAX_LAG_BYTES) continue
    print({
      verdict: 'warning',
      what: `database: standby "${plainText(name)}" is ${plainText(state)}, ${Math.round(Number(lag ?? 0) / 1024 / 1024)} MiB behind`,
      hint: 'look at its log: a failover to it loses what it has not replayed',
    })
  }
  if (off.length === 0 && found['is_replica'] !== true)
    print({
      verdict: 'ok',
      what: `database: durable (synchronous_commit=${commit}), ${standbys.length === 0 ? 'no standby' : `${standbys.length} standby${standbys.length === 1 ? '' : 's'}, ${isSynchronous ? 'synchronous' : 'asynchronous'}`}`,
    })
}

function checkMigrations(found: Record<string, unknown>, print: Print): void {
  const { known, applied, newest } = recordOf(found['migrations'])
  const nodes = recordsOf(found['nodes'])
  const versions = [...new Set(nodes.map(({ version }) => plainText(version)))].toSorted()
  if (Number(applied) < Number(known))
    print({
      verdict: 'error',
      what: `database: migration ${plainText(newest)} is the newest, and the program knows ${plainText(known)}`,
      hint: 'restart api or manager: the log says why the migration failed or waits',
    })
  else
    print({
      verdict: 'ok',
      what: `database: migration ${plainText(newest)}${Number(applied) > Number(known) ? ', of a newer version' : ''}`,
    })
  if (versions.length > 1)
    print({
      verdict: 'warning',
      what: `programs of several versions are running: ${nodes.map(({ id, version }) => `${plainText(id)} ${plainText(version)}`).join(', ')}`,
      hint: 'finish the upgrade: docs/guides/upgrade.md',
    })
}

const daysSince = (time: unknown) => (typeof time === 'string' ? (Date.now() - Date.parse(time)) / DAY_MS : Infinity)

/** An archive of the write-ahead log replaces backups of Skein. */
function checkBackups(found: Record<string, unknown>, print: Print): void {
  const archive = found['archive']
  if (isRecord(archive)) {
    const { last_at: last, last_failure_at: failure } = archive
    if (daysSince(failure) < daysSince(last))
      return print({
        verdict: 'error',
        what: `database: failed to archive the write-ahead log at ${plainText(failure)}`,
        hint: 'look at archive_command in the log of PostgreSQL: the log fills the disk until it succeeds',
      })
    if (daysSince(last) <= MAX_ARCHIVE_AGE_DAYS)
      return print({ verdict: 'ok', what: `database: the write-ahead log was last archived at ${plainText(last)}` })
  }
  const last = found['last_at']
  const days = daysSince(last ?? found['installed_at'])
  const age = last === undefined ? 'there is no backup' : `the last backup is of ${plainText(last)}`
  // A new installation has time for its first backup.
  if (days <= MAX_BACKUP_AGE_DAYS) return print({ verdict: 'ok', what: age })
  print({
    verdict: 'warning',
    what: last === undefined ? age : `the last backup is ${Math.floor(days)} days old (${plainText(last)})`,
    hint: 'npm run backup -- FILE writes one while Skein runs: docs/guides/backup.md',
  })
}

/** Rounds follow each other within twenty minutes. */
const MAX_ROUND_DAYS = 1 / 24
const MAX_BEHIND_SECONDS = 86_400

/** The copy of records for other engines. */
function checkHistory(found: Record<string, unknown>, print: Print): void {
  const { failure, succeeded_at: succeeded, behind_seconds: behind, overdue_files: left } = found
  const hint = 'docs/guides/history-in-other-engines.md; records stay in the database meanwhile'
  if (failure !== undefined)
    return print({ verdict: 'error', what: `history: ${plainText(failure)} (since ${plainText(succeeded)})`, hint })
  if (daysSince(succeeded) > MAX_ROUND_DAYS)
    return print({
      verdict: 'error',
      what: `history: the copy has made no progress since ${plainText(succeeded)}`,
      hint: `check that the folder or bucket of SKEIN_ARCHIVE_URL answers: ${hint}`,
    })
  if (Number(behind ?? 0) > MAX_BEHIND_SECONDS)
    print({
      verdict: 'warning',
      what: `history: the copy is ${Math.round(Number(behind) / 3600)} hours behind`,
      hint,
    })
  if (Number(left ?? 0) > 0)
    print({ verdict: 'warning', what: `history: ${Number(left)} files could not be deleted`, hint })
  if (Number(behind ?? 0) <= MAX_BEHIND_SECONDS && Number(left ?? 0) === 0)
    print({ verdict: 'ok', what: `history: records were last copied at ${plainText(succeeded)}` })
}

/** Without these, one domain can fill the disk, or take what all domains send. */
const QUOTAS_OF_SEVERAL_DOMAINS = ['stored_records', 'module_bytes', 'run_bytes', 'messages_per_second'] as const

/** Amounts that stay until something is deleted, or a retention passes. */
const STORED_AMOUNTS = [
  'clients',
  'channels',
  'groups',
  'consumers',
  'rules',
  'maintenance_windows',
  'open_alarms',
  'stored_records',
  'queued_bytes',
  'mqtt_sessions',
  'mqtt_subscriptions',
  'tasks',
  'workflows',
  'schedules',
  'triggers',
  'state_keys',
  'state_bytes',
  'module_bytes',
  'run_bytes',
  'queued_runs',
] as const
/** Domains whose use is read, in pages: counting takes the server some milliseconds for each. */
const MAX_COUNTED_DOMAINS = 200
const PAGE_DOMAINS = 100
/** Domains that are read at a time, and findings of them. */
const COUNTED_AT_ONCE = 4
const MAX_NAMED_DOMAINS = 20

/**
 * Whether the quotas that keep domains apart are in force by default, in an installation with several domains, and which domains have more than
 * they may. Only a platform administrator sees quotas: other callers get no finding.
 */
export async function checkQuotas(cli: Cli, print: Print): Promise<void> {
  const read = async (path: string, query: Readonly<Record<string, string>> = {}) => {
    const { value } = await cli.request({ method: 'GET', service: 'domains', path, query, deadlineMs: DEADLINE_MS })
    return recordOf(value)
  }
  try {
    const { total, domains } = await read('/domains', { limit: '1' })
    const [domain] = recordsOf(domains)
    if (domain === undefined) return
    const quotas = await read(`/domains/${plainText(domain['id'])}/quotas`)
    if (Number(total) > 1) checkDefaults(quotas, print)
    await checkUses(read, Number(total), print)
  } catch (error) {
    if (error instanceof RefusedError) return
    throw error
  }
}

function checkDefaults(quotas: Record<string, unknown>, print: Print): void {
  const [own, inForce] = [recordOf(quotas['own']), recordOf(quotas['quotas'])]
  // A value of the domain itself says nothing about the others.
  const missing = QUOTAS_OF_SEVERAL_DOMAINS.filter((name) => (inForce[name] ?? null) === null && !(name in own))
  print(
    missing.length === 0
      ? { verdict: 'ok', what: 'quotas of domains are set' }
      : {
          verdict: 'warning',
          what: `domains have no limit of ${missing.join(', ')}: one of them can use up what all of them share`,
          hint: `set ${missing.map((name) => `SKEIN_QUOTA_${name.toUpperCase()}`).join(', ')}: docs/guides/quotas.md`,
        },
  )
}

/** Paths of devices themselves begin with it: a domain that had this route before is reached by its id alone. */
const ROUTE_OF_DEVICES = 'c'

function nameHiddenRoutes(domains: readonly Record<string, unknown>[], print: Print): void {
  for (const { id, name, route } of domains)
    if (route === ROUTE_OF_DEVICES)
      print({
        verdict: 'warning',
        what: `domain ${plainText(name, plainText(id))} (${plainText(id)}) has the alias ${ROUTE_OF_DEVICES}, which belongs to the topics and paths of devices`,
        hint: `give it another alias: skein domains update ${plainText(id)} '{"alias": "…"}' (docs/guides/device-state.md)`,
      })
}

type Read = (path: string, query?: Readonly<Record<string, string>>) => Promise<Record<string, unknown>>

/** Domains above a limit, as after an upgrade that brought one: nothing of theirs is deleted, and nothing can be added. */
async function checkUses(read: Read, total: number, print: Print): Promise<void> {
  const listed: Record<string, unknown>[] = []
  for (let offset = 0; offset < Math.min(total, MAX_COUNTED_DOMAINS); offset += PAGE_DOMAINS) {
    const page = await read('/domains', { limit: String(PAGE_DOMAINS), offset: String(offset) })
    listed.push(...recordsOf(page['domains']))
  }
  nameHiddenRoutes(listed, print)
  const found: { what: string; names: string[] }[] = []
  const next = listed.values()
  const count = async () => {
    for (const domain of next) {
      const id = plainText(domain['id'])
      const usage = await read(`/domains/${id}/usage`).catch((error: unknown) => {
        // It was deleted meanwhile.
        if (error instanceof RefusedError) return {}
        throw error
      })
      const quotas = recordOf(recordOf(usage)['quotas'])
      const above = STORED_AMOUNTS.flatMap((name) => {
        const { limit, used } = recordOf(quotas[name])
        return typeof limit === 'number' && typeof used === 'number' && used > limit ? [{ name, limit, used }] : []
      })
      if (above.length === 0) continue
      const uses = above.map(({ name, limit, used }) => `${name} (${used} of ${limit})`).join(', ')
      found.push({
        what: `domain ${plainText(domain['name'], id)} (${id}) has more than its quota of ${uses}`,
        names: above.map(({ name }) => name),
      })
    }
  }
  await Promise.all(Array.from({ length: COUNTED_AT_ONCE }, count))
  for (const { what, names } of found.slice(0, MAX_NAMED_DOMAINS))
    print({
      verdict: 'warning',
      what,
      hint: `nothing is deleted, and nothing can be added: let the domain delete some, or raise ${names.join(', ')} (docs/guides/quotas.md)`,
    })
  const unnamed = found.length - MAX_NAMED_DOMAINS
  if (unnamed > 0) print({ verdict: 'warning', what: `${unnamed} more domains have more than a quota of theirs` })
  if (total > listed.length)
    print({
      verdict: 'ok',
      what: `the quotas of ${listed.length} of ${total} domains were compared with what they use`,
    })
}
