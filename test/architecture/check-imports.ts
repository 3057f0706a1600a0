/** Compares the imports of the tree with the table of rooms; gives one sentence per violation. */
import {
  BUNDLED_ROOMS,
  EXAMINERS,
  IMPURE_TEXT,
  PACKAGE_OWNERS,
  PURE_FILES,
  PURE_IMPORTS,
  ROLE_RULES,
  ROOMS,
  TEST_PACKAGES,
} from './rooms.ts'
import type { Room } from './rooms.ts'
import { ORDERED_ROOMS, SLICES } from './slices.ts'
import { importsOf } from './source-imports.ts'
import type { Import, SourceFile } from './source-imports.ts'

export type Report = {
  violations: string[]
  /** Imports seen between files of ours; a checker that sees none is blind. */
  edgeCount: number
  /** Files per room. */
  fileCounts: ReadonlyMap<string, number>
  /** Third-party packages that the product imports when it runs. */
  packages: ReadonlySet<string>
  /** Third-party packages that are built into files for the browser. */
  bundled: ReadonlySet<string>
}

export function roomOf(path: string): Room {
  const found = ROOMS.filter((room) => path.startsWith(`${room.folder}/`)).toSorted(
    (left, right) => right.folder.length - left.folder.length,
  )[0]
  if (found === undefined) throw new Error(`${path} lies in no room of test/architecture/rooms.ts`)
  return found
}

const isTest = (path: string) => path.endsWith('.test.ts')

/** They import the program of a name, from a build or from the sources, and the transpiler, whose files are used as they are. */
const COMPUTED_IMPORTERS: ReadonlySet<string> = new Set(['programs/run.ts', 'guests/module-reading/load-transpiler.ts'])

/** `tree` holds the paths of all files that an import may name. */
export function checkImports(
  sources: readonly SourceFile[],
  tree: ReadonlySet<string> = new Set(sources.map((source) => source.path)),
): Report {
  const violations: string[] = []
  const fileCounts = new Map<string, number>()
  const packages = new Set<string>()
  const bundled = new Set<string>()
  let edgeCount = 0
  for (const source of sources) {
    const from = roomOf(source.path)
    fileCounts.set(from.name, (fileCounts.get(from.name) ?? 0) + 1)
    const { imports, computed } = importsOf(source)
    const isExaminer = EXAMINERS.has(from.name) || isTest(source.path)
    if (!isExaminer) {
      for (const text of COMPUTED_IMPORTERS.has(source.path) ? [] : computed)
        violations.push(`${source.path} imports ${text}: a computed import cannot be checked`)
      if (isPure(source.path) && IMPURE_TEXT.test(source.text)) {
        violations.push(
          `${source.path} must decide from its arguments alone, and holds ${IMPURE_TEXT.exec(source.text)?.[0]}`,
        )
      }
    }
    for (const one of imports) {
      if (one.kind === 'ours') edgeCount += 1
      if (one.kind === 'package' && !isExaminer && !one.isType)
        (BUNDLED_ROOMS.has(from.name) ? bundled : packages).add(one.to)
      const fault = one.kind === 'ours' ? roomFault(one, from, tree) : undefined
      const rule =
        fault ?? (isExaminer ? testFault(one, from) : (packageFault(one) ?? roleFault(one) ?? purityFault(one)))
      if (rule !== undefined) violations.push(`${source.path} imports ${one.specifier}: ${rule}`)
    }
  }
  return { violations, edgeCount, fileCounts, packages, bundled }
}

/** Who composes rooms may read their settings before it loads them: a file of settings is a second face. */
const COMPOSERS = new Set(['programs', 'api'])
const SETTINGS_FILE = /\/(config|settings)\.ts$/

function roomFault({ from: path, to, specifier }: Import, from: Room, tree: ReadonlySet<string>): string | undefined {
  if (!tree.has(to) && !to.startsWith('proto/gen/') && !to.endsWith('.css')) return `there is no file ${to}`
  const target = roomOf(to)
  if (target === from) {
    if (specifier.startsWith('#') && !isTest(path)) return `${from.name} is its own room: import by a relative path`
    const fault = sliceFault(path, to, from)
    if (fault !== undefined) return fault
    const isOwnPart = !from.isOfParts || partOf(path) === partOf(to) || from.face.test(to)
    return isOwnPart ? undefined : `the parts of ${from.name} are imported through their index.ts only`
  }
  const isPart = target.folder.startsWith(`${from.folder}/`)
  if (!specifier.startsWith('#') && !isPart && !EXAMINERS.has(from.name)) return `another room is named by its # path`
  if (COMPOSERS.has(from.name) && SETTINGS_FILE.test(to)) return undefined
  if (!from.mayImport.includes(target.name)) return EXAMINERS.has(target.name) ? target.rule : from.rule
  if (EXAMINERS.has(from.name) || target.face.test(to)) return undefined
  return `${target.name} is imported through its index.ts only`
}

/** Slices stand on the ones before them in the list of their room, and never on the files that put them together. */
function sliceFault(path: string, to: string, room: Room): string | undefined {
  const own = sliceOf(path, room)
  const other = sliceOf(to, room)
  const order = Object.keys(SLICES[room.name] ?? {})
  const isComposing = own === COMPOSING && !order.includes(COMPOSING)
  if (own === other || isComposing || !ORDERED_ROOMS.includes(room.name) || isTest(path)) return undefined
  if (!order.includes(own)) return `${own} is no slice of ${room.name} in test/architecture/slices.ts`
  if (other === COMPOSING && !order.includes(COMPOSING))
    return `a slice does not import the files that put the slices of ${room.name} together`
  if (order.indexOf(other) < order.indexOf(own) && order.includes(other)) return undefined
  return `in ${room.name}, ${own} does not stand on ${other} (test/architecture/slices.ts)`
}

/** The files of a room's own folder, in the lists of slices. */
const COMPOSING = '.'

/** The folder of the room that contains a file. */
function sliceOf(path: string, room: Room): string {
  const [first, ...rest] = path.slice(room.folder.length + 1).split('/')
  return rest.length === 0 ? COMPOSING : (first ?? '')
}

/** The folder of a file below the folder of its room. */
const partOf = (path: string) => path.split('/').slice(0, -1)[1]

/** Tests and tools may use what they like of the packages; tests beside the code stay with the usual ones and the room's own. */
function testFault(one: Import, from: Room): string | undefined {
  if (one.kind !== 'package' || EXAMINERS.has(from.name) || TEST_PACKAGES.has(one.to)) return undefined
  return packageFault(one)
}

function packageFault({ from: path, to, kind, isType }: Import): string | undefined {
  if (kind !== 'package') return undefined
  const row = PACKAGE_OWNERS.find((owner) => owner.package === to)
  if (row === undefined) return `${to} has no owner in test/architecture/rooms.ts`
  if (row.owner.test(path) || (isType && row.types?.test(path) === true)) return undefined
  return row.rule
}

function roleFault({ from: path, to, isType }: Import): string | undefined {
  return ROLE_RULES.find(
    (role) => role.files.test(path) && role.mustNotImport.test(to) && !(role.allowsTypes && isType),
  )?.rule
}

const isPure = (path: string) => PURE_FILES.some((pattern) => pattern.test(path)) && !isTest(path)

/** A type is erased: it reaches nothing. */
function purityFault({ from: path, to, isType }: Import): string | undefined {
  if (isType || !isPure(path) || isPure(to) || PURE_IMPORTS.test(to)) return undefined
  return 'a pure file imports pure files only'
}
