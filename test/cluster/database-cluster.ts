/**
 * Three PostgreSQL servers under Patroni with etcd, and HAProxy in front of them, as `deploy/ha/` configures them for three machines:
 * the same files, with addresses and folders of this test.
 */
import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { giveTo, nobodyAccount, ownAccount } from '#postgres/embedded/account.ts'
import { until } from '../harness/until.ts'
import { familyOf } from '../harness/whole.ts'
import { oneBalancer } from './balancer.ts'
import type { Balance, Balanced, Balancer } from './balancer.ts'
import { loopback } from './network.ts'
import type { Network, Site } from './network.ts'
import { DEPLOY, Program, environmentOf, signal } from './program.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const NAMES = ['a', 'b', 'c'] as const
/** Of every role. */
export const DATABASE_PASSWORD = 'the-password-of-the-test'
const WHOLE_DEADLINE_MS = 120_000
const ANSWER_DEADLINE_MS = 2000
const END_DEADLINE_MS = 15_000

/** A member as Patroni describes it. */
type MemberState = { name: string; role: string; state: string; lag?: number | string }

/** Where there is no such program, tests that need it are skipped; a run that sets CI=true must have it. */
export function hasClusterPrograms(): boolean {
  const answer = (program: string, ...args: string[]) => {
    try {
      return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
    } catch {
      return undefined
    }
  }
  const missing = ['etcd', 'haproxy', 'redis-server'].filter((name) => answer('which', name) === undefined)
  // An older one loses what was acknowledged: docs/guides/external-database.md.
  if (!/^patroni (4\.0\.([6-9]|\d\d)|4\.[1-9]|[5-9]\.|\d\d\.)/.test(answer('patroni', '--version') ?? ''))
    missing.push('patroni of test/cluster/install.sh')
  if (!existsSync('/usr/lib/postgresql/15/bin/postgres')) missing.push('postgresql-15')
  if (missing.length > 0 && process.env['CI'] === 'true') throw new Error(`not installed: ${missing.join(', ')}`)
  return missing.length === 0
}

export class Member implements AsyncDisposable {
  readonly name: string
  readonly site: Site
  readonly etcd: Program
  readonly patroni: Program
  readonly #dataDir: string

  constructor(options: { name: string; site: Site; dataDir: string; etcd: Program; patroni: Program }) {
    this.name = options.name
    this.site = options.site
    this.etcd = options.etcd
    this.patroni = options.patroni
    this.#dataDir = options.dataDir
  }

  /** PostgreSQL with its server processes; empty while it does not run. */
  get postgres(): number[] {
    try {
      const pid = Number(readFileSync(join(this.#dataDir, 'postmaster.pid'), 'utf8').split('\n')[0])
      process.kill(pid, 0)
      return familyOf(pid)
    } catch {
      return []
    }
  }

  killPostgres(): void {
    for (const pid of this.postgres) signal(pid, 'SIGKILL')
  }

  freezePostgres(): void {
    for (const pid of this.postgres) signal(pid, 'SIGSTOP')
  }

  thawPostgres(): void {
    for (const pid of this.postgres) signal(pid, 'SIGCONT')
  }

  /** Patroni and PostgreSQL. */
  freeze(): void {
    for (const pid of this.patroni.family) signal(pid, 'SIGSTOP')
    this.freezePostgres()
  }

  thaw(): void {
    this.thawPostgres()
    for (const pid of this.patroni.family) signal(pid, 'SIGCONT')
  }

  /** As when the machine is lost: nothing of it answers any more, except etcd, of which the test does not take a majority. */
  async killPatroniAndPostgres(): Promise<void> {
    const pids = this.postgres
    await this.patroni.kill()
    for (const pid of pids) signal(pid, 'SIGKILL')
  }

  async hasEtcd(): Promise<boolean> {
    const { address, ports } = this.site
    try {
      const answer = await fetch(`http://${address}:${ports.client}/version`, {
        signal: AbortSignal.timeout(ANSWER_DEADLINE_MS),
      })
      return /^\d/.test(((await answer.json()) as { etcdcluster: string }).etcdcluster)
    } catch {
      return false
    }
  }

  async ask(path: string): Promise<{ status: number; text: string } | undefined> {
    try {
      const { address, ports } = this.site
      const answer = await fetch(`http://${address}:${ports.rest}${path}`, {
        signal: AbortSignal.timeout(ANSWER_DEADLINE_MS),
      })
      return { status: answer.status, text: await answer.text() }
    } catch {
      return undefined
    }
  }

  /** How far the clock of PostgreSQL is ahead of ours, in seconds. */
  async clockOffsetSeconds(): Promise<number> {
    return (await this.#number('extract(epoch FROM now())')) - Date.now() / 1000
  }

  /** The standbys that a COMMIT of this server waits for; one of them has to answer. */
  async standbysOfCommit(): Promise<number> {
    return await this.#number("(SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum')")
  }

  /** The value of an expression, as the superuser sees it. */
  async #number(expression: string): Promise<number> {
    const { address, ports } = this.site
    const client = new pg.Client({
      connectionString: `postgres://postgres:${DATABASE_PASSWORD}@${address}:${ports.postgres}/postgres`,
      connectionTimeoutMillis: ANSWER_DEADLINE_MS,
      query_timeout: ANSWER_DEADLINE_MS,
    })
    client.on('error', () => undefined)
    await client.connect()
    try {
      const { rows } = await client.query<{ value: number }>(`SELECT (${expression})::float8 AS value`)
      return rows[0]?.value ?? 0
    } finally {
      await client.end()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Otherwise it would start PostgreSQL again.
    await this.patroni.kill()
    this.thawPostgres()
    // Immediate shutdown. After SIGKILL, shared memory would be left behind.
    for (const pid of this.postgres.slice(0, 1)) signal(pid, 'SIGQUIT')
    await until(() => this.postgres.length === 0, 'PostgreSQL has ended', END_DEADLINE_MS).catch(() =>
      this.killPostgres(),
    )
    await this.etcd.kill()
    await this.site[Symbol.asyncDispose]()
  }
}

export class DatabaseCluster implements AsyncDisposable {
  readonly members: readonly Member[]
  readonly primaryUrl: string
  readonly replicaUrl: string
  readonly balancers: readonly Balancer[]

  private constructor(members: readonly Member[], { balancers, primary, replica }: Balanced) {
    const urlOf = (address: string) => `postgres://skein:${DATABASE_PASSWORD}@${address}/skein`
    this.members = members
    this.balancers = balancers
    this.primaryUrl = urlOf(primary)
    this.replicaUrl = urlOf(replica)
  }

  /** `environmentOfMember`: what PostgreSQL and Patroni of a member get in addition. */
  static async start(
    folder: string,
    options: {
      network?: Network
      balance?: Balance
      environmentOfMember?: (name: string) => Record<string, string>
    } = {},
  ): Promise<DatabaseCluster> {
    const { network = loopback, balance = oneBalancer, environmentOfMember = () => ({}) } = options
    const account = process.getuid?.() === 0 ? nobodyAccount() : ownAccount()
    chmodSync(folder, 0o755)
    const perMember = await Promise.all(
      NAMES.map(async (name, index) => {
        const host = `10.0.0.${11 + index}`
        const own = join(folder, `db-${name}`)
        mkdirSync(own)
        giveTo(account, own)
        // Data folders of etcd and PostgreSQL are made by them.
        return { name, host, own, site: await network(`db-${name}`, host) }
      }),
    )
    type Place = (typeof perMember)[number]
    const withPorts = (value: string, { host, site: { address, ports } }: Place) =>
      value
        .replaceAll(`${host}:2380`, `${address}:${ports.peer}`)
        .replaceAll(`${host}:2379`, `${address}:${ports.client}`)
        .replaceAll(`${host}:5432`, `${address}:${ports.postgres}`)
        .replaceAll(`${host}:8008`, `${address}:${ports.rest}`)
    /** The files are those of the first machine, except lists of all of them. */
    const ofMember = (file: string, place: Place) =>
      environmentOf(file, (key, value) => {
        if (key.endsWith('PASSWORD')) return DATABASE_PASSWORD
        const addressed = value.includes('10.0.0.12')
          ? value
          : value.replaceAll('10.0.0.11', place.host).replaceAll('0.0.0.0', place.host)
        return perMember
          .reduce(withPorts, addressed)
          .replace(/^db-a$/, `db-${place.name}`)
          .replace(/^\/var\/lib\/(etcd|postgresql)\//, `${place.own}/$1-`)
          .replace('/15/skein', '-skein')
          .replace('/opt/skein', ROOT)
      })
    const members = perMember.map((place) => {
      const patroni = ofMember('patroni.env', place)
      const program = (name: string, file: string, args: string[], env: Record<string, string>) =>
        new Program(`db-${place.name}-${name}`, { site: place.site, file, args, env, folder: place.own, account })
      return new Member({
        name: `db-${place.name}`,
        site: place.site,
        dataDir: patroni['PATRONI_POSTGRESQL_DATA_DIR'] as string,
        etcd: program('etcd', 'etcd', [], ofMember('etcd.env', place)),
        patroni: program('patroni', 'patroni', [join(DEPLOY, 'patroni.yml')], {
          ...patroni,
          ...environmentOfMember(`db-${place.name}`),
        }),
      })
    })
    const balanced = await balance(folder, (key, value) => {
      const member = perMember.find(({ name }) => key === `SKEIN_HA_${name.toUpperCase()}_CHECK`)
      return member === undefined ? perMember.reduce(withPorts, value) : String(member.site.ports.rest)
    })
    const cluster = new DatabaseCluster(members, balanced)
    try {
      for (const { etcd } of members) etcd.begin()
      // Patroni ends when etcd has not agreed on a version yet.
      for (const member of members) await until(() => member.hasEtcd(), `etcd of ${member.name}`, WHOLE_DEADLINE_MS)
      for (const { patroni } of members) patroni.begin()
      for (const balancer of balanced.balancers) balancer.begin()
      await cluster.untilWhole()
      await until(() => cluster.#answers(), 'the database answers through HAProxy', WHOLE_DEADLINE_MS)
    } catch (error) {
      await cluster[Symbol.asyncDispose]()
      throw error
    }
    return cluster
  }

  /** What the members say, from the first of them that answers. */
  async states(): Promise<MemberState[]> {
    for (const member of this.members) {
      const answer = await member.ask('/cluster')
      if (answer?.status === 200) return (JSON.parse(answer.text) as { members: MemberState[] }).members
    }
    return []
  }

  async leader(): Promise<Member> {
    return await until(
      async () => {
        const answers = await Promise.all(this.members.map(async (member) => (await member.ask('/primary'))?.status))
        return this.members.find((_, index) => answers[index] === 200)
      },
      'a leader',
      WHOLE_DEADLINE_MS,
    )
  }

  async standbys(): Promise<Member[]> {
    const leader = await this.leader()
    return this.members.filter((member) => member !== leader)
  }

  /** A leader and two standbys run; the standbys follow it without a lag, and either of them is enough for a COMMIT. */
  async untilWhole(): Promise<void> {
    let states: MemberState[] = []
    await until(
      async () => {
        states = await this.states()
        const following = states.filter(
          ({ role, state, lag }) => role === 'quorum_standby' && state === 'streaming' && lag === 0,
        )
        const running = states.find(({ role, state }) => role === 'leader' && state === 'running')
        const leader = this.members.find(({ name }) => name === running?.name)
        if (following.length < NAMES.length - 1 || leader === undefined) return false
        // Patroni says so before PostgreSQL does.
        return (await leader.standbysOfCommit().catch(() => 0)) === following.length
      },
      'three servers that follow each other',
      WHOLE_DEADLINE_MS,
    ).catch((error: unknown) => {
      throw new Error(`${(error as Error).message}: ${JSON.stringify(states)}`, { cause: error })
    })
  }

  async #answers(): Promise<boolean> {
    const client = new pg.Client({ connectionString: this.primaryUrl, connectionTimeoutMillis: ANSWER_DEADLINE_MS })
    client.on('error', () => undefined)
    try {
      await client.connect()
      await client.query('SELECT 1')
      return true
    } catch {
      return false
    } finally {
      await client.end().catch(() => undefined)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.members, ...this.balancers].map((one) => one[Symbol.asyncDispose]()))
  }
}
