/** The banner of `npm start`: addresses, login, and a next command. */
import { relative } from 'node:path'
import { isLoopbackHost } from '#core/loopback.ts'

export type BannerFacts = {
  version: string
  seconds: number
  base: string
  manager: string
  /** Processes of the platform. */
  processes?: number
  /** Undefined: CoAP is off. */
  coap: string | undefined
  mqtt: string | undefined
  /** A description of SKEIN_MANAGER_AUTH in effect. */
  managerAccess: string
  grpcAddress: string
  /** The file with the join token of workers. */
  tokenFile: string
  proxyAddress: string
  /** The base of links in emails and certificates. */
  publicUrl: string
  databaseNote: string
  /** Default ports that another program uses. */
  takenPorts: readonly number[]
  admin: { username: string; secretFile: string | undefined; createdSecret: string | undefined }
  notices: readonly string[]
}

/** Warnings for a user who runs modules of other people. */
export function isolationNotices(level: string | undefined): string[] {
  if (level !== 'process') return []
  return [
    'guests are isolated only by the permission model of Node (isolation level process): install bubblewrap, or start as root, before you run modules of other people',
  ]
}

/** Every address of this machine is shown as the name under which others reach it, if that is known. */
function workersAddress({ grpcAddress, publicUrl }: BannerFacts): string {
  const { hostname } = new URL(publicUrl)
  const name = isLoopbackHost(hostname.replaceAll(/[[\]]/g, '')) ? 'HOST' : hostname
  return grpcAddress.replace(EVERY_ADDRESS, `${name}:`)
}

/** The default addresses of the tour and the command line. */
const DEFAULT_BASE = 'http://127.0.0.1:8080'
const DEFAULT_MANAGER = 'http://127.0.0.1:7070'

/** Such a listener is reachable under every name of this machine. */
const EVERY_ADDRESS = /^(?:0\.0\.0\.0|\[::\]):/

/** The tour command, with the addresses that differ from the defaults. */
function tourOf({ base, manager }: BannerFacts): string {
  const urls = [
    ...(base === DEFAULT_BASE ? [] : [`SKEIN_URL=${base}`]),
    ...(manager === DEFAULT_MANAGER ? [] : [`SKEIN_MANAGER_URL=${manager}`]),
  ]
  return [...urls, 'npm run tour'].join(' ')
}

const processesOf = ({ processes = 1 }: BannerFacts) => (processes === 1 ? '' : `   ${processes} processes`)

/** The secret is shown only on a terminal, and only at the start that generated it (decision 48). */
export function renderBanner(facts: BannerFacts, isTerminal: boolean): string {
  const bold = (text: string) => (isTerminal ? `\u001B[1m${text}\u001B[22m` : text)
  const { admin } = facts
  const file = admin.secretFile === undefined ? undefined : relative(process.cwd(), admin.secretFile)
  const login =
    admin.createdSecret !== undefined && isTerminal
      ? `${admin.username} / ${admin.createdSecret}   (shown once; saved in ${file})`
      : file === undefined
        ? `${admin.username}, with the configured password`
        : `${admin.username}, with the password in ${file}${admin.createdSecret === undefined ? ' unless it was changed' : ''}`
  const rows: [string, string][] = [
    ['Console', `${facts.base}/console`],
    ['Platform', `${facts.base}   API: ${facts.base}/docs${processesOf(facts)}`],
    ...(facts.mqtt === undefined ? [] : [['MQTT', facts.mqtt] as [string, string]]),
    ...(facts.coap === undefined ? [] : [['CoAP', facts.coap] as [string, string]]),
    ['Task manager', `${facts.manager}   ${facts.managerAccess}`],
    [
      'Workers',
      `connect to ${workersAddress(facts)} with the token in ${relative(process.cwd(), facts.tokenFile)}; one is running here`,
    ],
    ['Module proxy', facts.proxyAddress],
    ['Data', facts.databaseNote],
    ['Log in', login],
    ...(facts.takenPorts.length === 0
      ? []
      : [['Ports', `${facts.takenPorts.join(', ')} in use by another program; use ${facts.base}`] as [string, string]]),
    ...(facts.publicUrl === DEFAULT_BASE && facts.base !== DEFAULT_BASE
      ? [['Links', `in emails and certificates point to ${DEFAULT_BASE}: set SKEIN_PUBLIC_URL`] as [string, string]]
      : []),
    ...facts.notices.map((notice): [string, string] => ['Note', notice]),
    ['Next', tourOf(facts)],
  ]
  return [
    '',
    `  ${bold(`Skein ${facts.version} is running`)}  (ready after ${facts.seconds.toFixed(2)} s, Ctrl-C stops it)`,
    '',
    ...rows.map(([name, text]) => `  ${name.padEnd(14)}${text}`),
    '',
    '',
  ].join('\n')
}
