/** Parameters and responses that several operations have become components with a name, and what most need to prove is said once. Pure. */
import { isDeepStrictEqual } from 'node:util'
import type { Operation, Parameter, Paths, Response, Security } from './operations.ts'

type Named<Part> = Record<string, Part>
type Ref = { $ref: string }
export type Components = { parameters?: Named<Parameter>; responses?: Named<Response>; [kind: string]: unknown }

const PARAMETERS = '#/components/parameters/'
const RESPONSES = '#/components/responses/'
/** The rule of the document: an operation that says nothing about credentials has this one. */
const SECURITY = [{ bearer: [] }]

/** Gives one kind of part its names: the most frequent form of a name has no number. */
function createNames<Part>(wantedName: (part: Part, key: string) => string) {
  const counts = new Map<string, { part: Part; key: string; count: number }>()
  return {
    count(part: Part, key: string): void {
      const text = JSON.stringify(part)
      const known = counts.get(text)
      if (known === undefined) counts.set(text, { part, key, count: 1 })
      else known.count += 1
    },
    /** Names by the text of the part, of those that occur more than once. */
    names(): Map<string, string> {
      const taken = new Map<string, number>()
      const repeated = [...counts].filter(([, { count }]) => count > 1)
      return new Map(
        repeated
          .toSorted(([a, left], [b, right]) => right.count - left.count || (a < b ? -1 : 1))
          .map(([text, { part, key }]) => {
            const wanted = wantedName(part, key)
            const number = (taken.get(wanted) ?? 0) + 1
            taken.set(wanted, number)
            return [text, number === 1 ? wanted : `${wanted}${number}`]
          }),
      )
    },
  }
}

function pascal(text: string): string {
  return text
    .split(/[^A-Za-z0-9]+/)
    .map((word) => `${word.slice(0, 1).toUpperCase()}${word.slice(1)}`)
    .join('')
}

/** `Client200`: what it contains, and its status. */
function responseName(response: Response, status: string): string {
  if ('$ref' in response) return status
  const [content] = Object.values(response.content ?? {})
  const { $ref: ref } = (content?.['schema'] ?? {}) as { $ref?: string }
  const contained = ref === undefined ? (content === undefined ? 'Empty' : 'Response') : (ref.split('/').at(-1) ?? '')
  return `${contained}${status}`
}

const operationsOf = (paths: Paths): Operation[] => Object.values(paths).flatMap((item) => Object.values(item))

/** The document with its repeated parameters and responses as components. */
export function nameParts<D extends { paths?: Paths; components?: object }>(document: D): D {
  const paths = document.paths ?? {}
  const parameters = createNames<Parameter>(({ name, in: place }) =>
    pascal(place === 'path' ? `${name}_in_path` : name),
  )
  const responses = createNames<Response>(responseName)
  for (const operation of operationsOf(paths)) {
    for (const parameter of operation.parameters ?? []) parameters.count(parameter, parameter.name)
    for (const [status, response] of Object.entries(operation.responses ?? {}))
      if (!('$ref' in response)) responses.count(response, status)
  }
  const [parameterNames, responseNames] = [parameters.names(), responses.names()]
  const refer = <Part>(part: Part, names: ReadonlyMap<string, string>, prefix: string): Part | Ref => {
    const name = names.get(JSON.stringify(part))
    return name === undefined ? part : { $ref: `${prefix}${name}` }
  }
  const named = mapOperations(paths, ({ security, ...operation }) => ({
    ...operation,
    ...(security === undefined || isDeepStrictEqual(security, SECURITY) ? {} : { security }),
    ...(operation.parameters === undefined
      ? {}
      : { parameters: operation.parameters.map((one) => refer(one, parameterNames, PARAMETERS) as Parameter) }),
    responses: Object.fromEntries(
      Object.entries(operation.responses ?? {}).map(([status, one]) => [status, refer(one, responseNames, RESPONSES)]),
    ),
  }))
  const components = document.components as Components | undefined
  return {
    ...document,
    security: SECURITY,
    paths: named,
    components: {
      ...components,
      parameters: byName<Parameter>(parameterNames),
      responses: { ...components?.responses, ...byName<Response>(responseNames) },
    },
  }
}

/** The document with its named parameters, responses and credentials in their places; refusals keep their names. */
export function spreadParts<D extends { paths?: Paths; components?: object; security?: Security }>(document: D): D {
  const { security, ...around } = document
  const { parameters = {}, responses = {}, ...others } = (document.components ?? {}) as Components
  const spread = <Part extends object>(part: Part, named: Named<Part>, prefix: string): Part => {
    const { $ref: ref } = part as Partial<Ref>
    const name = ref?.startsWith(prefix) === true ? ref.slice(prefix.length) : undefined
    return name === undefined || isRefusal(name) ? part : (named[name] as Part)
  }
  const paths = mapOperations(document.paths ?? {}, (operation) => ({
    ...(security === undefined ? {} : { security }),
    ...operation,
    ...(operation.parameters === undefined
      ? {}
      : { parameters: operation.parameters.map((one) => spread(one, parameters, PARAMETERS)) }),
    responses: Object.fromEntries(
      Object.entries(operation.responses ?? {}).map(([status, one]) => [status, spread(one, responses, RESPONSES)]),
    ),
  }))
  const refusals = Object.fromEntries(Object.entries(responses).filter(([name]) => isRefusal(name)))
  return { ...(around as D), paths, components: { ...others, responses: refusals } }
}

const isRefusal = (name: string) => name.startsWith('Refusal')

function mapOperations(paths: Paths, change: (operation: Operation) => Operation): Paths {
  return Object.fromEntries(
    Object.entries(paths).map(([path, item]) => [
      path,
      Object.fromEntries(Object.entries(item).map(([method, operation]) => [method, change(operation)])),
    ]),
  )
}

function byName<Part>(names: ReadonlyMap<string, string>): Named<Part> {
  const sorted = [...names].toSorted(([, left], [, right]) => (left < right ? -1 : 1))
  return Object.fromEntries(sorted.map(([text, name]) => [name, JSON.parse(text) as Part]))
}
