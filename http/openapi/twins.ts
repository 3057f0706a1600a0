/**
 * Paths that answer in the same way are described once: the operation names all of its paths in `x-paths`. Which paths may be twins is
 * said by rules; an operation whose shape differs from its twin's is described at its own path. Pure.
 */
import { operationIdOf } from './operations.ts'
import type { Operation, Parameter, Paths, Response } from './operations.ts'

export type TwinRule = {
  /** The part of a path that is replaced. */
  older: RegExp
  /** The replacement, as in `String.replace`. */
  newer: string
  /** A parameter of the newer path stands for several nouns: that path is described, and is no route of its own. */
  nouns?: {
    parameter: string
    at: RegExp
    /** The words of its texts for one of the nouns, and for any. */
    said: { one: RegExp; any: string }
  }
}

/** The paths of an operation that has several, itself included where it is a route. */
export const PATHS = 'x-paths'

const CONFLICT = '409'
const IN_PATH = /\{([^{}]+)\}/g

type Described = Operation & { [PATHS]?: string[] }

type Candidate = { path: string; rule: TwinRule }

/** The paths that may describe this one, the newest first. */
function candidatesOf(path: string, rules: readonly TwinRule[]): Candidate[] {
  const found: Candidate[] = []
  let current = path
  for (const rule of rules) {
    const next = current.replace(rule.older, rule.newer)
    if (next !== current) found.unshift({ path: next, rule })
    current = next
  }
  return found
}

/** Everything that must be equal. Texts, ids in the path, and the 409 of a path that says less need not be: rules about them are said once. */
function shapeOf(path: string, { parameters = [], requestBody, responses = {}, ...rest }: Operation): string {
  const {
    operationId: _id,
    summary: _summary,
    description: _text,
    tags: _tags,
    [PATHS]: _paths,
    ...others
  } = rest as Described
  const { [CONFLICT]: _conflict, ...answers } = responses
  const shape = JSON.stringify([parameters.filter((one) => one.in !== 'path'), requestBody, answers, others])
  return shape.replaceAll(path, '')
}

export function mergeTwins(paths: Paths, rules: readonly TwinRule[]): Paths {
  const all = Object.entries(paths).map(([path, item]) => ({ path, item, candidates: candidatesOf(path, rules) }))
  const merged: Record<string, Record<string, Described>> = {}
  // A path without a newer form may describe others.
  for (const { path, item, candidates } of all.toSorted((a, b) => a.candidates.length - b.candidates.length)) {
    for (const [method, operation] of Object.entries(item)) {
      const at = placeOf(path, method, operation, candidates)
      if (at !== undefined) (at[PATHS] ??= []).push(path)
      else (merged[path] ??= {})[method] = operation
    }
  }

  /** The operation that describes this one; undefined when it stands for itself. */
  function placeOf(path: string, method: string, operation: Operation, candidates: readonly Candidate[]) {
    for (const { path: candidate, rule } of candidates) {
      const known = merged[candidate]?.[method]
      if (known === undefined) {
        if (rule.nouns === undefined) continue
        return ((merged[candidate] ??= {})[method] = generalized(path, candidate, method, operation, rule.nouns))
      }
      if (shapeOf(candidate, known) !== shapeOf(path, operation)) continue
      if (known[PATHS] === undefined && paths[candidate]?.[method] !== undefined) known[PATHS] = [candidate]
      return known
    }
    return undefined
  }
  for (const [path, item] of Object.entries(merged))
    for (const operation of Object.values(item)) nameNouns(path, operation, rules)
  return Object.fromEntries(Object.entries(merged).toSorted(([left], [right]) => (left < right ? -1 : 1)))
}

/** The operation at a path with a parameter in place of the noun. */
function generalized(
  path: string,
  at: string,
  method: string,
  operation: Operation,
  { parameter, said }: NonNullable<TwinRule['nouns']>,
): Described {
  const names = namesIn(at)
  const given = new Map((operation.parameters ?? []).map((one) => [`${one.in} ${one.name}`, one]))
  const previous = namesIn(path)
  const inPath = names.map((name, index): Parameter => {
    if (name === parameter) return { name, in: 'path', required: true, description: `Kind of ${said.any}`, schema: {} }
    const own = given.get(`path ${name}`)
    if (own !== undefined) return own
    // The id behind the noun has its place, one further to the left.
    const replaced = given.get(`path ${previous[index - 1] ?? ''}`)
    return { name, in: 'path', required: true, description: textOf(name), schema: replaced?.schema ?? {} }
  })
  const text = JSON.stringify({ ...operation, parameters: undefined }).replaceAll(path, at)
  const rest = (operation.parameters ?? []).filter((one) => one.in !== 'path')
  return {
    ...(JSON.parse(text) as Operation),
    ...(operation.summary === undefined ? {} : { summary: operation.summary.replace(said.one, said.any) }),
    operationId: operationIdOf(method, at),
    parameters: [...inPath, ...rest],
  }
}

const textOf = (name: string) => `Id of the ${name.slice(0, -'_id'.length).replaceAll('_', ' ')}`

const namesIn = (path: string): string[] => [...path.matchAll(IN_PATH)].map(([, name = '']) => name)

/** Fills the values of the parameter that stands for nouns. */
function nameNouns(path: string, operation: Described, rules: readonly TwinRule[]): void {
  const nouns = rules.find((rule) => rule.nouns?.at.test(path) === true)?.nouns
  const parameter = operation.parameters?.find(({ name }) => name === nouns?.parameter)
  if (nouns === undefined || parameter === undefined) return
  // Paths differ in what stands before the noun.
  const parts = path.split('/')
  const at = parts.indexOf(`{${nouns.parameter}}`) - parts.length
  const values = (operation[PATHS] ?? []).map((one) => one.split('/').at(at) ?? '')
  parameter.schema = { type: 'string', enum: [...new Set(values)].toSorted() }
}

/** The paths again with an operation for each path, as routes have them. */
export function separateTwins(paths: Paths): Paths {
  const separate: Paths = {}
  for (const [path, item] of Object.entries(paths)) {
    for (const [method, { [PATHS]: all, ...operation }] of Object.entries(item) as [string, Described][]) {
      for (const one of all ?? [path])
        (separate[one] ??= {})[method] = one === path ? operation : movedTo(one, path, method, operation)
    }
  }
  return Object.fromEntries(Object.entries(separate).toSorted(([left], [right]) => (left < right ? -1 : 1)))
}

function movedTo(path: string, from: string, method: string, operation: Operation): Operation {
  const given = (operation.parameters ?? []).filter((one) => one.in === 'path')
  const names = namesIn(path)
  // The id that the path calls by its noun.
  const general = given.find((one) => !names.includes(one.name) && one.schema?.['enum'] === undefined)
  const inPath = names.map(
    (name): Parameter =>
      given.find((one) => one.name === name) ?? {
        name,
        in: 'path',
        required: true,
        description: textOf(name),
        schema: general?.schema ?? {},
      },
  )
  const rest = (operation.parameters ?? []).filter((one) => one.in !== 'path')
  const text = JSON.stringify({ ...operation, parameters: undefined }).replaceAll(from, path)
  const moved = JSON.parse(text) as Operation
  const responses: Record<string, Response> = { ...moved.responses }
  // A path that says less about where an id is may mean several.
  if (inPath.length < given.length) responses[CONFLICT] ??= { $ref: `#/components/responses/Refusal${CONFLICT}` }
  const parameters = [...inPath, ...rest]
  return {
    ...moved,
    operationId: operationIdOf(method, path),
    ...(parameters.length === 0 ? {} : { parameters }),
    responses,
  }
}
