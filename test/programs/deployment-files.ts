/** The files of the reference deployment, read as their tools read them. */
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { parse } from 'yaml'

export const ROOT = join(import.meta.dirname, '..', '..')

export type ComposeService = {
  image: string
  build?: { context: string }
  command?: string[]
  user?: string
  read_only?: boolean
  cap_drop?: string[]
  cap_add?: string[]
  security_opt?: string[]
  ports?: string[]
  volumes?: string[]
  secrets?: string[]
  networks: string[] | Record<string, { ipv4_address?: string; aliases?: string[] }>
  cpus?: number
  mem_limit?: string
  pids_limit?: number
  environment?: Record<string, string>
  healthcheck?: { test: string[] }
}

export type Compose = {
  services: Record<string, ComposeService>
  networks: Record<string, { internal?: boolean; ipam?: { config: { subnet: string; ip_range?: string }[] } }>
  volumes: Record<string, unknown>
  secrets: Record<string, { file: string }>
}

export function readCompose(file = 'docker-compose.yml'): Compose {
  return parse(readFileSync(join(ROOT, file), 'utf8'), { merge: true }) as Compose
}

/** `dist/<name>.js` of a service's command; undefined for an image of another product. */
export function programOf({ command }: ComposeService): string | undefined {
  return command === undefined ? undefined : /^dist\/([a-z]+)\.js$/.exec(command[1] ?? '')?.[1]
}

/** One use of a variable in the file, in compose's syntax: `${NAME:?why}` stops the start, `${NAME:-text}` has a default. */
export type Interpolation = { name: string; operator: ':?' | ':-' | ''; operand: string }

const INTERPOLATION = /\$\{(\w+)(?:(:\?|:-)([^}]*))?\}/g

export function interpolationsOf(text: string): Interpolation[] {
  return [...text.matchAll(INTERPOLATION)].map(([, name = '', operator = '', operand = '']) => ({
    name,
    operator: operator as Interpolation['operator'],
    operand,
  }))
}

/** The text with its variables replaced. Throws for a required one that is not given. */
export function interpolate(text: string, variables: Readonly<Record<string, string>>): string {
  return text.replace(
    INTERPOLATION,
    (_use, name: string, operator: string | undefined, operand: string | undefined) => {
      const value = variables[name] ?? ''
      if (value !== '') return value
      if (operator === ':?') throw new Error(`${name}: ${operand ?? ''}`)
      return operator === ':-' ? (operand ?? '') : ''
    },
  )
}

/** The environment of a service's container, over that of the image. */
export function environmentOf(
  service: ComposeService,
  variables: Readonly<Record<string, string>>,
): Record<string, string> {
  const own = Object.entries(service.environment ?? {}).map(([name, value]) => [name, interpolate(value, variables)])
  return { ...imageEnvironment(), ...(Object.fromEntries(own) as Record<string, string>) }
}

export function readDockerfile(): string[] {
  const text = readFileSync(join(ROOT, 'Dockerfile'), 'utf8')
  return text
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
}

function imageEnvironment(): Record<string, string> {
  const pairs = readDockerfile()
    .filter((line) => line.startsWith('ENV '))
    .flatMap((line) => line.slice(4).trim().split(/\s+/))
  return Object.fromEntries(pairs.map((pair) => pair.split('=', 2))) as Record<string, string>
}

export type Prepared = Disposable & {
  /** Holds `deploy/`, with what prepare.sh made. */
  folder: string
  /** What `--env-file deploy/skein.env` gives. */
  variables: Record<string, string>
}

/** Runs deploy/prepare.sh for a host name, in a copy of deploy/. */
export async function prepare(hostName: string): Promise<Prepared> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-deploy-'))
  cpSync(join(ROOT, 'deploy'), join(folder, 'deploy'), {
    recursive: true,
    filter: (path) => !/skein\.env|certs/.test(path),
  })
  await promisify(execFile)('sh', [join(folder, 'deploy/prepare.sh'), hostName])
  const lines = readFileSync(join(folder, 'deploy/skein.env'), 'utf8').split('\n')
  const pairs = lines
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const equals = line.indexOf('=')
      return [line.slice(0, equals), line.slice(equals + 1)]
    })
  return {
    folder,
    variables: Object.fromEntries(pairs) as Record<string, string>,
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}
