/** Reads every import of a source file: static, type-only, re-exported and dynamic. */
import { Visitor, parseSync } from 'oxc-parser'
import type { CallExpression, Program } from 'oxc-parser'
import { globSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { FOLDERS } from './rooms.ts'

export const ROOT = join(import.meta.dirname, '..', '..')

export type SourceFile = {
  /** Relative to the root, with `/`. */
  path: string
  text: string
}

export type Import = {
  from: string
  /** A file of ours (`api/devices/index.ts`), a package (`lru-cache`) or a module of Node (`node:fs`). */
  to: string
  kind: 'ours' | 'package' | 'node'
  /** Erased before the program runs. */
  isType: boolean
  /** As it is written. */
  specifier: string
}

/** Every TypeScript file of ours but the generated ones, which import their own packages and each other. */
export function readSources(): SourceFile[] {
  return globSync(`{${FOLDERS.join(',')}}/**/*.{ts,tsx}`, { cwd: ROOT })
    .map((path) => path.replaceAll('\\', '/'))
    .filter((path) => !path.startsWith('proto/gen/'))
    .toSorted()
    .map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }))
}

const EXAMINING = /^(test|tools|bench)\/|\.test\.ts$/

/** The files that run in production. */
export function productSources(): SourceFile[] {
  return readSources().filter(({ path }) => !EXAMINING.test(path))
}

/** Throws when the file cannot be parsed: a checker that skips what it cannot read would pass blind. */
export function importsOf({ path, text }: SourceFile): { imports: Import[]; computed: string[] } {
  const { module, program, errors } = parseSync(path, text)
  if (errors.length > 0) throw new Error(`${path} cannot be parsed: ${errors[0]?.message}`)
  const imports = new Map<string, Import>()
  const computed: string[] = []
  const add = (specifier: string, isType: boolean) => {
    const found = imports.get(specifier)
    imports.set(specifier, { ...resolve(path, specifier), isType: isType && (found?.isType ?? true) })
  }
  for (const { moduleRequest, entries } of module.staticImports) {
    add(moduleRequest.value, entries.length > 0 && entries.every((entry) => entry.isType))
  }
  for (const { entries } of module.staticExports) {
    for (const { moduleRequest, isType } of entries) if (moduleRequest !== null) add(moduleRequest.value, isType)
  }
  for (const { moduleRequest } of module.dynamicImports) {
    const source = text.slice(moduleRequest.start, moduleRequest.end)
    const literal = /^'([^'\\]+)'$|^"([^"\\]+)"$|^`([^`$\\]+)`$/.exec(source)
    const specifier = literal?.[1] ?? literal?.[2] ?? literal?.[3]
    if (specifier === undefined) computed.push(source)
    else add(specifier, false)
  }
  if (text.includes('import(')) {
    new Visitor({ TSImportType: ({ source }) => add(source.value, true) }).visit(program)
  }
  if (text.includes('createRequire')) addRequired(program, add, computed)
  return { imports: [...imports.values()], computed }
}

/** What is loaded by a function that `createRequire` made. */
function addRequired(program: Program, add: (specifier: string, isType: boolean) => void, computed: string[]): void {
  const loaders = new Set<string>()
  const isCallOf = (call: CallExpression, names: ReadonlySet<string>) =>
    call.callee.type === 'Identifier' && names.has(call.callee.name)
  new Visitor({
    VariableDeclarator({ id, init }) {
      if (init?.type === 'CallExpression' && isCallOf(init, CREATE_REQUIRE) && id.type === 'Identifier')
        loaders.add(id.name)
    },
  }).visit(program)
  new Visitor({
    CallExpression(call) {
      if (!isCallOf(call, loaders)) return
      const [specifier] = call.arguments
      if (specifier?.type === 'Literal' && typeof specifier.value === 'string') add(specifier.value, false)
      else computed.push('require')
    },
  }).visit(program)
}

const CREATE_REQUIRE = new Set(['createRequire'])

function resolve(from: string, specifier: string): Omit<Import, 'isType'> {
  if (specifier.startsWith('node:')) return { from, specifier, to: specifier, kind: 'node' }
  if (specifier.startsWith('#')) return { from, specifier, to: specifier.slice(1), kind: 'ours' }
  if (specifier.startsWith('.')) {
    // The suffix of a file of the browser says how it is built, as in `./guest.ts?worker`.
    const [file = ''] = specifier.split('?', 1)
    return { from, specifier, to: posix.normalize(posix.join(dirname(from), file)), kind: 'ours' }
  }
  const parts = specifier.split('/')
  return { from, specifier, to: parts.slice(0, specifier.startsWith('@') ? 2 : 1).join('/'), kind: 'package' }
}
