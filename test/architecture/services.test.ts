/**
 * One idiom for services (decision 0154): an object whose methods take the caller of each call is a class. A function that
 * returns such an object, or a type beside the class, would be a second way to write the same.
 */
import { Visitor, parseSync } from 'oxc-parser'
import type { Expression, Function as FunctionNode, ArrowFunctionExpression, Program } from 'oxc-parser'
import { expect, test } from 'vitest'
import { productSources } from './source-imports.ts'
import type { SourceFile } from './source-imports.ts'

/** Objects with callers that are not services, and why. */
const OTHERS: Readonly<Record<string, string>> = {
  'api/identity/access/effective-actions.ts':
    'caches of the policy: its callers are sets of grants, and it refuses nothing',
  'manager/access/access.ts': 'a port: tests of tasks have an implementation that is open to all',
}

type FunctionLike = FunctionNode | ArrowFunctionExpression

const isFunction = (node: { type: string } | null | undefined): node is FunctionLike =>
  node?.type === 'FunctionDeclaration' ||
  node?.type === 'FunctionExpression' ||
  node?.type === 'ArrowFunctionExpression'

const CALLER = /\bcaller\b|UserPrincipal|TaskCaller/

const takesCaller = ({ params }: FunctionLike, text: string): boolean =>
  params.some((param) => /^caller\b|:\s*(UserPrincipal|TaskCaller)\b/.test(text.slice(param.start, param.end)))

/** The methods with a caller of an object that a function returns. */
function methodsOf(
  object: Expression | null | undefined,
  inner: ReadonlyMap<string, FunctionLike>,
  text: string,
): string[] {
  if (object?.type === 'ParenthesizedExpression') return methodsOf(object.expression, inner, text)
  if (object?.type !== 'ObjectExpression') return []
  return object.properties.flatMap((property) => {
    if (property.type !== 'Property' || property.key.type !== 'Identifier') return []
    const value = property.value.type === 'Identifier' ? inner.get(property.value.name) : property.value
    return isFunction(value) && takesCaller(value, text) ? [property.key.name] : []
  })
}

/** The functions that return an object with methods that take a caller. */
function factoriesIn({ path, text }: SourceFile): string[] {
  if (!CALLER.test(text)) return []
  const { program, errors } = parseSync(path, text)
  if (errors.length > 0) throw new Error(`${path} cannot be parsed: ${errors[0]?.message}`)
  const found: string[] = []
  const look = (node: FunctionLike) => {
    const body = node.body
    if (body?.type !== 'BlockStatement') {
      if (methodsOf(body as Expression | null, new Map(), text).length > 0) found.push(path)
      return
    }
    const inner = new Map<string, FunctionLike>()
    for (const statement of body.body) {
      if (statement.type === 'FunctionDeclaration' && statement.id !== null) inner.set(statement.id.name, statement)
      if (statement.type === 'VariableDeclaration')
        for (const { id, init } of statement.declarations)
          if (id.type === 'Identifier' && isFunction(init)) inner.set(id.name, init)
    }
    for (const statement of body.body)
      if (statement.type === 'ReturnStatement' && methodsOf(statement.argument, inner, text).length > 0)
        found.push(path)
  }
  new Visitor({ FunctionDeclaration: look, FunctionExpression: look, ArrowFunctionExpression: look }).visit(program)
  return found
}

/** The exported types, and functions that create, whose name is that of a service. */
function otherServicesIn({ path, text }: SourceFile): string[] {
  if (!/^ *export .*Service\b/m.test(text)) return []
  const { program }: { program: Program } = parseSync(path, text)
  return program.body.flatMap((node) => {
    if (node.type !== 'ExportNamedDeclaration' || node.declaration === null) return []
    const { declaration } = node
    if (!('id' in declaration) || declaration.id?.type !== 'Identifier') return []
    const isClass = declaration.type === 'ClassDeclaration'
    return declaration.id.name.endsWith('Service') && !isClass ? [`${path}: ${declaration.id.name}`] : []
  })
}

/** The classes whose name is that of a service. */
const servicesIn = ({ text }: SourceFile) => text.match(/^export class \w+Service\b/gm) ?? []

const SERVING = /^(api|manager)\//
const serving = productSources().filter(({ path }) => SERVING.test(path))

test('no function returns an object whose methods take the caller', () => {
  expect([...new Set(serving.flatMap(factoriesIn))].toSorted()).toEqual(Object.keys(OTHERS).toSorted())
})

test('each name of a service is that of a class', () => {
  expect(serving.flatMap(otherServicesIn)).toEqual([])
  expect(serving.flatMap(servicesIn).length).toBeGreaterThan(40)
})

test('services that are written otherwise are found', () => {
  const planted = [
    `export function createPumps({ db }: Deps) { return { async stop(caller, id) { await db.stop(id) } } }`,
    `export function createPumps() { async function stop(caller: UserPrincipal) {}\n return { stop } }`,
    `export const createPumps = () => ({ stop: async (who: UserPrincipal) => await stop(who) })`,
    `export function createPumps() { const stop = (who: TaskCaller) => who\n return { halt: stop } }`,
  ]
  for (const text of planted) expect(factoriesIn({ path: 'api/pumps.ts', text }), text).toEqual(['api/pumps.ts'])
  const others = [
    `export type PumpsService = { stop(caller: UserPrincipal): void }`,
    `export function createPumpsService() { return {} }`,
  ]
  for (const text of others) expect(otherServicesIn({ path: 'api/pumps.ts', text })).toHaveLength(1)
})

test('classes, caches and adapters are left alone', () => {
  const text = `
    export class PumpsService { async stop(caller: UserPrincipal) {} }
    export function createTotalCache() { return { total(filter: string) { return filter } } }
    export function pumpRoutes(pumps: PumpsService) { return (app: App) => app.get('/', (request) => pumps.stop(request.principal)) }`
  expect(factoriesIn({ path: 'api/pumps.ts', text })).toEqual([])
  expect(otherServicesIn({ path: 'api/pumps.ts', text })).toEqual([])
})
