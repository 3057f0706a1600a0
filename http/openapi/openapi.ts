/**
 * The OpenAPI 3.1 document, generated from the routes, at `/openapi.json`, with a page to browse it. Rooms add texts that are not
 * part of a route with `describeDocument`.
 */
import swagger from '@fastify/swagger'
import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import type { FastifyContextConfig, FastifyInstance } from 'fastify'
import { registerDocsPage } from './docs-page.ts'
import type { HttpApp } from '../app.ts'
import { KeptAnswer, renderOnce, sendKept } from '../answers/kept-answers.ts'
import { createSchemaNames } from './components.ts'
import { HEADERS, completeOperations, operationIdOf, refusalResponses, withMediaTypes } from './operations.ts'
import { nameParts, spreadParts } from './named-parts.ts'
import type { Paths, Security } from './operations.ts'
import { mergeTwins, separateTwins } from './twins.ts'
import type { TwinRule } from './twins.ts'

export type DocumentTexts = {
  /** A sentence for each tag. */
  tags?: Readonly<Record<string, string>>
  /** An example for each schema, by its `$id`. */
  examples?: Readonly<Record<string, unknown>>
  /** A paragraph for the top of the document. */
  introduction?: string
  /** Paths that are described by another one. */
  twins?: readonly TwinRule[]
  /** The document of another process, whose paths are answered here too. */
  alsoServed?: object
}

type Texts = {
  tags: Map<string, string>
  examples: Map<string, unknown>
  introductions: string[]
  twins: TwinRule[]
  alsoServed: Document[]
}

const textsOf = new WeakMap<object, Texts>()

/** Adds texts to the document of the app; rooms call it where they register their routes. */
export function describeDocument(
  app: HttpApp,
  { tags = {}, examples = {}, introduction, twins = [], alsoServed }: DocumentTexts,
): void {
  const texts = textsOf.get(app)
  if (texts === undefined) throw new Error('the app has no document')
  for (const [tag, text] of Object.entries(tags)) texts.tags.set(tag, text)
  for (const [name, example] of Object.entries(examples)) texts.examples.set(name, example)
  if (introduction !== undefined) texts.introductions.push(introduction)
  texts.twins.push(...twins)
  if (alsoServed !== undefined) texts.alsoServed.push(completeDocument(alsoServed as Document))
}

const SECURITY_SCHEMES = {
  bearer: {
    type: 'http',
    scheme: 'bearer',
    bearerFormat: 'JWT',
    description: 'User access token, API key or personal access token',
  },
  client: {
    type: 'apiKey',
    in: 'header',
    name: 'Authorization',
    description: '`Client <secret>` of a device',
  },
  basic: {
    type: 'http',
    scheme: 'basic',
    description: 'Id and secret of a device',
  },
  external_key: {
    type: 'apiKey',
    in: 'header',
    name: 'Authorization',
    description: '`Client <external key>` of a device that requests its configuration',
  },
  mailed_link: {
    type: 'apiKey',
    in: 'header',
    name: 'Authorization',
    description: 'Scheme and token of a link in a mail, as the operation describes',
  },
  session: {
    type: 'apiKey',
    in: 'cookie',
    name: 'skein-session',
    description: 'Cookie of a browser session; `__Host-skein-session` where `SKEIN_PUBLIC_URL` is https',
  },
} as const

/** The schemes of a route that reads its own credentials; `none` when they are optional. */
export type Credential = keyof typeof SECURITY_SCHEMES | 'none'

const JSON_TYPE = 'application/json; charset=utf-8'
const PARAMETERS = new Set(['querystring', 'headers'])
/** The name of the wildcard parameter `*` of the router in the document. */
const REST = 'rest'

function securityOf(config: { isPublic?: boolean; ownCredentials?: readonly Credential[] } | undefined): Security {
  if (config?.isPublic === true) return []
  return (config?.ownCredentials ?? ['bearer']).map((name): Record<string, string[]> =>
    name === 'none' ? {} : { [name]: [] },
  )
}

export type Document = {
  info: { description?: string }
  tags?: { name: string; description?: string }[]
  security?: Security
  paths?: Paths
  components?: object
}

/** The document with an operation for each path, and with every part in its place: as it is without the abbreviations for readers. */
export function completeDocument<D extends Document>(published: D): D {
  const spread = spreadParts(published)
  return { ...spread, paths: separateTwins(spread.paths ?? {}) }
}

/** Merges two documents. A part that both documents have is that of the first. */
function mergeDocuments<D extends Document>(own: D, other: Document): D {
  const has = new Set(own.tags?.map(({ name }) => name))
  const tags = [...(own.tags ?? []), ...(other.tags ?? []).filter(({ name }) => !has.has(name))]
  const components: Record<string, object> = { ...(own.components as Record<string, object> | undefined) }
  for (const [kind, named] of Object.entries((other.components ?? {}) as Record<string, object>))
    components[kind] = { ...named, ...components[kind] }
  return {
    ...own,
    tags: tags.toSorted((left, right) => (left.name < right.name ? -1 : 1)),
    paths: { ...other.paths, ...own.paths },
    components,
  }
}

export function registerOpenApi(app: HttpApp, { version }: { version: string }): void {
  const plain = app as unknown as FastifyInstance
  const names = createSchemaNames()
  const texts: Texts = { tags: new Map(), examples: new Map(), introductions: [], twins: [], alsoServed: [] }
  textsOf.set(app, texts)
  /** The keys are the operation ids of the paths. */
  const configs = new Map<string, FastifyContextConfig>()

  function complete(made: object): object {
    const document = names.refer(made, texts.examples) as Document
    const paths = completeOperations(document.paths ?? {}, (operationId) => configs.get(operationId)?.location)
    for (const operations of Object.values(paths)) {
      for (const operation of Object.values(operations)) {
        const types = configs.get(operation.operationId ?? '')?.mediaType
        if (types !== undefined && operation.responses !== undefined)
          operation.responses = withMediaTypes(operation.responses, [types].flat())
      }
    }
    const used = new Set(
      Object.values(paths)
        .flatMap((operations) => Object.values(operations))
        .flatMap((operation) => operation.tags ?? []),
    )
    const tags = [...used].toSorted().map((name) => ({ name, ...descriptionOf(texts.tags.get(name)) }))
    const description = [document.info.description, ...texts.introductions].join('\n\n')
    const components = { ...document.components, responses: refusalResponses(), headers: HEADERS }
    const own = { ...document, info: { ...document.info, description }, tags, paths, components }
    const whole = texts.alsoServed.reduce(mergeDocuments, own)
    return nameParts({ ...whole, paths: mergeTwins(whole.paths ?? {}, texts.twins) })
  }

  // Called directly instead of registered: a registered plugin is loaded in a later turn and misses earlier routes.
  const options: FastifyDynamicSwaggerOptions = {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Skein',
        version,
        description: 'Device messaging platform and distributed WebAssembly task manager.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: '/', description: 'The server that this document is read from' }],
      components: { securitySchemes: SECURITY_SCHEMES },
    },
    transformObject: (document) =>
      'openapiObject' in document
        ? (complete(document.openapiObject) as typeof document.openapiObject)
        : document.swaggerObject,
    transform: ({ schema, url, route }) => {
      const { config } = route
      const shownUrl = url.replace('*', `:${REST}`)
      for (const method of [route.method].flat()) {
        const path = shownUrl.replaceAll(/:([a-z_]+)/g, '{$1}')
        if (config !== undefined) configs.set(operationIdOf(method, path), config)
      }
      const action = config?.action === undefined ? undefined : `Requires the action \`${config.action}\`.`
      const description = [schema?.description, action].filter((part) => part !== undefined).join('\n\n')
      const body = config?.bodies === undefined ? {} : { body: contentOf(config.bodies) }
      const response = withOthers(schema?.response, config?.otherResponses)
      const marked = Object.entries({ ...schema, ...body, ...response }).map(([part, value]) => {
        if (part === 'body' || part === 'response') return [part, names.mark(value)]
        if (part === 'params') return [part, withoutWildcard(names.spread(value))]
        return [part, PARAMETERS.has(part) ? names.spread(value) : value]
      })
      return {
        schema: { ...Object.fromEntries(marked), security: securityOf(config), ...descriptionOf(description) },
        url: shownUrl,
      }
    },
  }
  swagger(plain, options, () => undefined)
  const rendered = renderOnce(() => new KeptAnswer(JSON_TYPE, JSON.stringify(plain.swagger())))
  plain.get(
    '/openapi.json',
    { config: { isPublic: true }, schema: { hide: true } },
    async (request, reply) => await sendKept(request, reply, await rendered()),
  )
  registerDocsPage(plain, rendered)
}

function descriptionOf(description: string | undefined): { description?: string } {
  return description === undefined || description === '' ? {} : { description }
}

/** Responses of which some statuses have another form too. */
function withOthers(own: unknown, others: Readonly<Record<number, unknown>> | undefined): { response?: object } {
  if (others === undefined) return {}
  const schemas = own as Record<number, { description?: string }>
  const both = Object.entries(others).map(([status, other]) => {
    const first = schemas[Number(status)]
    return [status, { ...descriptionOf(first?.description), anyOf: [first, other] }]
  })
  return { response: { ...schemas, ...Object.fromEntries(both) } }
}

/** A body with a schema for each media type, in Fastify's form. */
function contentOf(bodies: Readonly<Record<string, unknown>>): object {
  return { content: Object.fromEntries(Object.entries(bodies).map(([type, schema]) => [type, { schema }])) }
}

/** Path parameters with names that are valid in a URI template. */
function withoutWildcard(schema: unknown): unknown {
  const { properties = {}, required = [], ...rest } = schema as { properties?: object; required?: string[] }
  const renamed = (name: string) => (name === '*' ? REST : name)
  return {
    ...rest,
    properties: Object.fromEntries(Object.entries(properties).map(([name, value]) => [renamed(name), value])),
    required: required.map(renamed),
  }
}
