/** HAProxy in front of PostgreSQL: on the machine of the programs, or on two machines of its own with an address that moves. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ownAccount } from '#postgres/embedded/account.ts'
import { freePorts } from '../harness/ports.ts'
import { loopback, machines } from './network.ts'
import type { Site } from './network.ts'
import { DEPLOY, Program, environmentOf } from './program.ts'

export type Balanced = {
  readonly balancers: readonly Balancer[]
  /** `host:port`. */
  readonly primary: string
  readonly replica: string
}

/** `placed` gives the value of a setting that names a database server. */
export type Balance = (folder: string, placed: (key: string, value: string) => string) => Promise<Balanced>

export class Balancer implements AsyncDisposable {
  readonly site: Site
  readonly haproxy: Program
  readonly #keepalived: Program | undefined

  constructor(site: Site, haproxy: Program, keepalived?: Program) {
    this.site = site
    this.haproxy = haproxy
    this.#keepalived = keepalived
  }

  begin(): void {
    this.haproxy.begin()
    this.#keepalived?.begin()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#keepalived?.kill()
    await this.haproxy.kill()
    await this.site[Symbol.asyncDispose]()
  }
}

const haproxyAt = (site: Site, folder: string, env: Record<string, string>) =>
  new Program('haproxy', {
    site,
    file: 'haproxy',
    args: ['-db', '-f', join(DEPLOY, 'haproxy.cfg')],
    env,
    folder,
    account: ownAccount(),
  })

export const oneBalancer: Balance = async (folder, placed) => {
  const addresses = (await freePorts(3)).map((port) => `127.0.0.1:${port}`)
  const [primary, replica, health] = addresses as [string, string, string]
  const env = environmentOf('haproxy.env', (key, value) =>
    placed(
      key,
      value.replace('127.0.0.1:5000', primary).replace('127.0.0.1:5001', replica).replace('127.0.0.1:8404', health),
    ),
  )
  const site = await loopback('haproxy', '127.0.0.1')
  return { balancers: [new Balancer(site, haproxyAt(site, folder, env))], primary, replica }
}

/** The addresses of `keepalived.conf`: its own, that of the other machine, and the one that moves. */
const HOSTS = ['10.0.0.21', '10.0.0.22'] as const
const SHARED_HOST = '10.0.0.10'

export function hasKeepalived(): boolean {
  try {
    execFileSync('keepalived', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    if (process.env['CI'] === 'true') throw new Error('not installed: keepalived')
    return false
  }
}

/** Needs a private network (`machines`). */
export const twoBalancers: Balance = async (folder, placed) => {
  const env = environmentOf('haproxy.env', (key, value) => placed(key, value.replace('127.0.0.1:500', '0.0.0.0:500')))
  const balancers = await Promise.all(
    HOSTS.map(async (host, index) => {
      const name = `lb-${index}`
      const own = join(folder, name)
      mkdirSync(own)
      const site = await machines(name, host)
      const config = join(own, 'keepalived.conf')
      const other = HOSTS[1 - index] as string
      const text = readFileSync(join(DEPLOY, 'keepalived.conf'), 'utf8')
      writeFileSync(
        config,
        text.replace(/10\.0\.0\.2[12]/g, (address) => (address === HOSTS[0] ? host : other)),
      )
      const pids = ['pid', 'vrrp_pid', 'checkers_pid'].map((kind) => `--${kind}=${join(own, kind)}`)
      const keepalived = new Program('keepalived', {
        site,
        file: 'keepalived',
        args: ['--dont-fork', '--log-console', '--log-detail', '--vrrp', `--use-file=${config}`, ...pids],
        env: {},
        folder: own,
        account: ownAccount(),
      })
      return new Balancer(site, haproxyAt(site, own, env), keepalived)
    }),
  )
  return { balancers, primary: `${SHARED_HOST}:5000`, replica: `${SHARED_HOST}:5001` }
}

/** The one that has the address. */
export function activeOf(balancers: readonly Balancer[]): Balancer | undefined {
  return balancers.find(({ site }) => {
    const { file, args } = site.command('ip', ['-oneline', 'address'], ownAccount())
    return execFileSync(file, args, { encoding: 'utf8' }).includes(`${SHARED_HOST}/`)
  })
}
