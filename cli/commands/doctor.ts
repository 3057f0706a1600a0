/** `skein doctor`: checks an installation from this machine and reports each problem with its remedy. */
import { statSync } from 'node:fs'
import type { Cli, Group } from '../shared/command.ts'
import { CommandError, RefusedError } from '../shared/failures.ts'
import { claimsOf } from '../shared/login-store.ts'
import { oneLine } from '../shared/plain-text.ts'
import { SERVICES } from '../shared/services.ts'
import type { ServiceName } from '../shared/services.ts'
import { isRecord, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import type { Finding, Print } from './doctor-findings.ts'
import { checkCertificate, checkDatabase, checkQuotas, checkReadiness } from './doctor-server.ts'
import { pathOfHealth } from './health.ts'

const HEALTH_DEADLINE_MS = 5000
const SLOW_MS = 1000
const MAX_CLOCK_DIFFERENCE_S = 30
const MIN_NODE = 26
/** Permission bits that let other users access a file with tokens. */
const OTHERS = 0o077

export const doctor: Group = {
  name: 'doctor',
  summary: 'check an installation and report problems',
  commands: [
    {
      words: '',
      args: '',
      tail: 'none',
      summary: 'check this program, the addresses, the services, the login and the workers',
      example: '--url https://skein.example.com',
      run: examine,
    },
  ],
}

async function examine(cli: Cli, given: Given): Promise<void> {
  const findings: Finding[] = []
  const print = (finding: Finding) => {
    findings.push(finding)
    if (!cli.output.isTerminal) return
    const style = finding.verdict === 'ok' ? 'green' : finding.verdict === 'warning' ? 'yellow' : 'red'
    cli.output.styledLine(`${cli.output.paint(style, finding.verdict.padEnd(8))} ${oneLine(finding.what)}`)
    if (finding.hint !== undefined) cli.output.line(`         ${oneLine(finding.hint)}`)
  }
  checkNode(print)
  checkFile(cli, print)
  const reachable = await checkServices(cli, print)
  if (reachable.has('users')) await checkLogin(cli, given, print)
  if (reachable.has('users') && cli.session.hasToken()) await checkDatabase(cli, print)
  if (reachable.has('domains') && cli.session.hasToken()) await checkQuotas(cli, print)
  if (reachable.has('manager')) await checkWorkers(cli, print)
  const errors = findings.filter((finding) => finding.verdict === 'error').length
  const warnings = findings.filter((finding) => finding.verdict === 'warning').length
  if (!cli.output.isTerminal) cli.output.data({ findings })
  if (errors > 0) throw new CommandError(`${errors} errors, ${warnings} warnings`)
  if (cli.output.isTerminal) cli.output.line(warnings === 0 ? 'all checks passed' : `${warnings} warnings`)
}

function checkNode(print: Print): void {
  const [major = '0'] = process.versions.node.split('.')
  print(
    Number(major) >= MIN_NODE
      ? { verdict: 'ok', what: `Node ${process.versions.node}` }
      : {
          verdict: 'error',
          what: `Node ${process.versions.node} is too old`,
          hint: `Node ${MIN_NODE} is required; npm ci installs it, then use npx skein`,
        },
  )
}

function checkFile({ settings }: Cli, print: Print): void {
  for (const path of [settings.contextsPath, settings.configPath]) {
    let mode: number
    try {
      mode = statSync(path).mode
    } catch {
      continue
    }
    const isOpen = process.platform !== 'win32' && (mode & OTHERS) !== 0
    print(
      isOpen && path === settings.contextsPath
        ? { verdict: 'error', what: `other users can read ${path}, which holds your tokens`, hint: `chmod 600 ${path}` }
        : { verdict: 'ok', what: path },
    )
  }
  if (settings.isInsecure)
    print({
      verdict: 'warning',
      what: 'TLS certificates are not verified',
      hint: 'remove --insecure, or set tls_verification = true',
    })
}

/** The services that answer. An address is checked once, however many services share it. */
async function checkServices(cli: Cli, print: Print): Promise<Set<ServiceName>> {
  const byUrl = new Map<string, ServiceName[]>()
  for (const service of SERVICES) {
    const { url } = cli.settings.address(service)
    const base = service === 'http' ? url.replace(/\/http$/, '') : url
    byUrl.set(base, [...(byUrl.get(base) ?? []), service])
  }
  const reachable = new Set<ServiceName>()
  await Promise.all(
    [...byUrl].map(async ([url, services]) => {
      const [first = 'host'] = services
      const names = services.join(', ')
      const begin = performance.now()
      try {
        const reply = await cli.request({
          method: 'GET',
          service: first,
          path: pathOfHealth(first),
          authorization: 'none',
          deadlineMs: HEALTH_DEADLINE_MS,
        })
        const tookMs = Math.round(performance.now() - begin)
        const record = isRecord(reply.value) ? reply.value : {}
        for (const service of services) reachable.add(service)
        const version = typeof record['version'] === 'string' ? ` ${record['version']}` : ''
        if (record['status'] !== 'pass')
          print({ verdict: 'error', what: `${url} is not Skein or is unhealthy (${names})`, hint: 'check the address' })
        else if (tookMs > SLOW_MS)
          print({ verdict: 'warning', what: `${url}${version} is slow: ${tookMs} ms (${names})` })
        else print({ verdict: 'ok', what: `${url}${version}, ${tookMs} ms (${names})` })
        checkClock(String(reply.headers['date'] ?? ''), url, print)
        await checkReadiness(cli, first, url, print)
        await checkCertificate(url, print)
      } catch (error) {
        const { from, key } = cli.settings.address(first)
        const hint = error instanceof CommandError ? error.hint : undefined
        print({
          verdict: 'error',
          what: `${(error as Error).message} (${names}; address: ${key === undefined ? from : `${from} (${key})`})`,
          hint:
            from === 'built in'
              ? 'set the address with skein login --url URL or SKEIN_URL, or start Skein here: skein up'
              : hint,
        })
      }
    }),
  )
  return reachable
}

/** Tokens and certificates expire by clocks: the clocks of both sides must agree. */
function checkClock(date: string, url: string, print: Print): void {
  const seconds = (Date.parse(date) - Date.now()) / 1000
  if (Math.abs(seconds) > MAX_CLOCK_DIFFERENCE_S)
    print({
      verdict: 'warning',
      what: `the clock of ${url} is ${Math.abs(Math.round(seconds))} s ${seconds > 0 ? 'ahead of' : 'behind'} this machine`,
      hint: 'synchronize both with NTP: tokens expire by the clock',
    })
}

async function checkLogin(cli: Cli, given: Given, print: Print): Promise<void> {
  if (!cli.session.hasToken()) return print({ verdict: 'warning', what: 'not logged in', hint: 'skein login' })
  try {
    const { value } = await cli.request({ method: 'GET', service: 'users', path: '/users/profile' })
    const credentials = isRecord(value) && isRecord(value['credentials']) ? value['credentials'] : {}
    const expiresAt = claimsOf(cli.session.login()?.access_token ?? '')?.exp
    const until = expiresAt === undefined ? '' : `, token until ${new Date(expiresAt * 1000).toISOString()}`
    print({ verdict: 'ok', what: `logged in as ${plainText(credentials['username'], 'a user')}${until}` })
  } catch (error) {
    const hint = error instanceof CommandError ? error.hint : undefined
    return print({ verdict: 'error', what: `the login failed: ${(error as Error).message}`, hint })
  }
  if (given.domain === undefined)
    return print({
      verdict: 'warning',
      what: 'no domain in use',
      hint: 'skein domains get all, then skein context domain ID',
    })
  try {
    await cli.request({ method: 'GET', service: 'domains', path: `/domains/${encodeURIComponent(given.domain)}` })
    print({ verdict: 'ok', what: `domain ${given.domain}` })
  } catch (error) {
    print({
      verdict: 'error',
      what: `domain ${given.domain}: ${(error as Error).message}`,
      hint: 'skein domains get all, then skein context domain ID',
    })
  }
}

async function checkWorkers(cli: Cli, print: Print): Promise<void> {
  try {
    const { value } = await cli.request({
      method: 'GET',
      service: 'manager',
      path: '/workers',
      query: { limit: '100', status: 'alive' },
      authorization: 'optional',
    })
    const alive = isRecord(value) ? Number(value['total'] ?? 0) : 0
    print(
      alive > 0
        ? { verdict: 'ok', what: `${alive} worker${alive === 1 ? '' : 's'} alive` }
        : {
            verdict: 'warning',
            what: 'no worker is alive: tasks stay pending',
            hint: 'join one: docs/guides/join-a-worker.md',
          },
    )
    const workers = isRecord(value) && Array.isArray(value['workers']) ? value['workers'].filter(isRecord) : []
    checkIsolation(workers, print)
  } catch (error) {
    const isRefused = error instanceof RefusedError && (error.status === 401 || error.status === 403)
    print({
      verdict: isRefused ? 'warning' : 'error',
      what: `workers: ${(error as Error).message}`,
      hint: error instanceof CommandError ? error.hint : undefined,
    })
  }
}

/** Only users who can read all fields of a worker see its isolation level. */
function checkIsolation(workers: readonly Record<string, unknown>[], print: Print): void {
  for (const worker of workers) {
    const level = worker['isolation']
    if (typeof level !== 'string' || level === '') continue
    const what = `worker ${plainText(worker['name'], 'without a name')} has isolation level ${level}`
    const hint = 'install bubblewrap on its machine or run it as root: docs/guides/join-a-worker.md'
    print(level === 'process' ? { verdict: 'warning', what, hint } : { verdict: 'ok', what })
  }
}
