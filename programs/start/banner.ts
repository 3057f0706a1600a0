/** The banner of `npm start`: where everything is, how to log in, what to try next. */
import { relative } from 'node:path'

export type BannerFacts = {
  version: string
  seconds: number
  base: string
  manager: string
  /** Undefined: it is off. */
  coap: string | undefined
  mqtt: string | undefined
  /** What SKEIN_MANAGER_AUTH means for whoever reads this. */
  managerAccess: string
  grpcAddress: string
  /** Holds the join token of workers. */
  tokenFile: string
  proxyAddress: string
  /** The base of links in mails and certificates. */
  publicUrl: string
  databaseNote: string
  /** Ports of the specification that another program holds. */
  takenPorts: readonly number[]
  admin: { username: string; secretFile: string | undefined; madeSecret: string | undefined }
  notices: readonly string[]
}

/** What a user should know who runs modules of others here. */
export function isolationNotices(level: string | undefined): string[] {
  if (level !== 'process') return []
  return [
    'guests run with the permission model of Node alone (isolation level process): install bubblewrap, or start as root, before you run modules of others',
  ]
}

/** Where the tour and the command line look by themselves. */
const DEFAULT_BASE = 'http://127.0.0.1:8080'
const DEFAULT_MANAGER = 'http://127.0.0.1:7070'

/** A listener there is reached under whatever name this machine has. */
const EVERY_ADDRESS = /^(?:0\.0\.0\.0|\[::\]):/

/** The command as it is typed here: with the addresses that it would not find. */
function tourOf({ base, manager }: BannerFacts): string {
  const urls = [
    ...(base === DEFAULT_BASE ? [] : [`SKEIN_URL=${base}`]),
    ...(manager === DEFAULT_MANAGER ? [] : [`SKEIN_MANAGER_URL=${manager}`]),
  ]
  return [...urls, 'npm run tour'].join(' ')
}

/** The secret is shown on a terminal only, and only at the start that made it (decision 48). */
export function renderBanner(facts: BannerFacts, isTerminal: boolean): string {
  const bold = (text: string) => (isTerminal ? `\u001B[1m${text}\u001B[22m` : text)
  const { admin } = facts
  const file = admin.secretFile === undefined ? undefined : relative(process.cwd(), admin.secretFile)
  const login =
    admin.madeSecret !== undefined && isTerminal
      ? `${admin.username} / ${admin.madeSecret}   (shown once; kept in ${file})`
      : file === undefined
        ? `${admin.username}, with the password it was given`
        : `${admin.username}, with the password in ${file}${admin.madeSecret === undefined ? ', or another one since' : ''}`
  const rows: [string, string][] = [
    ['Platform', `${facts.base}   API: ${facts.base}/docs`],
    ...(facts.mqtt === undefined ? [] : [['MQTT', facts.mqtt] as [string, string]]),
    ...(facts.coap === undefined ? [] : [['CoAP', facts.coap] as [string, string]]),
    ['Task manager', `${facts.manager}   ${facts.managerAccess}`],
    [
      'Workers',
      `dial ${facts.grpcAddress.replace(EVERY_ADDRESS, 'HOST:')} with the token in ${relative(process.cwd(), facts.tokenFile)}; one runs here`,
    ],
    ['Module proxy', facts.proxyAddress],
    ['Data', facts.databaseNote],
    ['Log in', login],
    ...(facts.takenPorts.length === 0
      ? []
      : [['Ports', `${facts.takenPorts.join(', ')} taken by another program; use ${facts.base}`] as [string, string]]),
    ...(facts.publicUrl === DEFAULT_BASE && facts.base !== DEFAULT_BASE
      ? [['Links', `in mails and certificates lead to ${DEFAULT_BASE}: set SKEIN_PUBLIC_URL`] as [string, string]]
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
