/**
 * Adds the packages of other platforms to package-lock.json. npm omits packages from the lock file that the current
 * registry does not have, and `npm ci` then refuses the file that `npm install` has just written (npm/cli issue 9846).
 * The added packages are for other platforms and are never installed here. Run it after every `npm install` that changes
 * the lock.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

type Entry = {
  version?: string
  dev?: boolean
  optional?: boolean
  cpu?: string[]
  os?: string[]
  libc?: string[]
  optionalDependencies?: Record<string, string>
}

const FILE = join(import.meta.dirname, '..', 'package-lock.json')

/** Parts of a package's name, in Node's names of systems and processors. */
const SYSTEMS = new Set([
  'darwin',
  'win32',
  'linux',
  'android',
  'freebsd',
  'openharmony',
  'sunos',
  'netbsd',
  'openbsd',
  'aix',
])
const PROCESSORS = new Map([
  ['x64', 'x64'],
  ['arm64', 'arm64'],
  ['aarch64', 'arm64'],
  ['arm', 'arm'],
  ['armv7', 'arm'],
  ['ia32', 'ia32'],
  ['ppc64', 'ppc64'],
  ['riscv64', 'riscv64'],
  ['s390x', 's390x'],
  ['loong64', 'loong64'],
  ['wasm32', 'wasm32'],
])
/** Packages whose name does not contain their platform. */
const KNOWN: Readonly<Record<string, Entry>> = { fsevents: { os: ['darwin'] } }

const lock = JSON.parse(readFileSync(FILE, 'utf8')) as { packages: Record<string, Entry> }
const added = new Map<string, Entry>()
for (const [parent, { optionalDependencies = {}, dev }] of Object.entries(lock.packages)) {
  for (const [name, range] of Object.entries(optionalDependencies)) {
    if (`node_modules/${name}` in lock.packages || `${parent}/node_modules/${name}` in lock.packages) continue
    added.set(`node_modules/${name}`, entryOf(name, range, dev === true))
  }
}
const packages = Object.entries(lock.packages).concat([...added])
lock.packages = Object.fromEntries(packages.toSorted(([left], [right]) => left.localeCompare(right, 'en')))
writeFileSync(FILE, `${JSON.stringify(lock, undefined, 2)}\n`)
console.log(`${added.size} packages of other platforms added`)

function entryOf(name: string, range: string, isDev: boolean): Entry {
  const version = /\d+\.\d+\.\d+\S*/.exec(range)?.[0]
  const words = name.split(/[-/@]/)
  const system = words.find((word) => SYSTEMS.has(word))
  const processor = words.map((word) => PROCESSORS.get(word)).find((word) => word !== undefined)
  const platform = KNOWN[name] ?? {
    ...(processor === undefined ? {} : { cpu: [processor] }),
    ...(system === undefined ? {} : { os: [system] }),
    ...(system !== 'linux'
      ? {}
      : words.includes('musl')
        ? { libc: ['musl'] }
        : words.includes('gnu')
          ? { libc: ['glibc'] }
          : {}),
  }
  // Without a platform npm would try to install it here.
  if (version === undefined || (platform.cpu === undefined && platform.os === undefined))
    throw new Error(
      `${name} ${range} is missing from package-lock.json, and its name does not say for which platform it is`,
    )
  return { version, ...platform, ...(isDev ? { dev: true } : {}), optional: true }
}
