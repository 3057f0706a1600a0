/**
 * The OpenAPI 3.1 document, generated from the routes, at `/openapi.json`, with a page to browse it. What no route can
 * know, rooms say once with `describeDocument`.
 */
import swagger from '@fastify/swagger'
import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import type { FastifyInstance } from 'fastify'
import { registerDocsPage } from './docs-page.ts'
import type { HttpApp } from './app.ts'
import { createSchemaNames } from './openapi-components.ts'
import { completeOperations, operationIdOf, refusalResponses, withMediaTypes } from './openapi-operations.ts'
import type { Paths } from './openapi-operations.ts'

export type DocumentTexts = {
  /** A sentence for each tag. */
  tags?: Readonly<Record<string, string>>
  /** An example for each schema, by its `$id`. */
  examples?: Readonly<Record<string, unknown>>
  /** A paragraph for the top of the document. */
  introduction?: string
}

type Texts = { tags: Map<string, string>; examples: Map<string, unknown>; introductions: string[] }

const textsOf = new WeakMap<object, Texts>()

/** Adds words to the document of the app; rooms call it where they register their routes. */
export function describeDocument(app: HttpApp, { tags = {}, examples = {}, introduction }: DocumentTexts): void {
  const texts = textsOf.get(app)
  if (texts === undefined) throw new Error('the app has no document')
  for (const [tag, text] of Object.entries(tags)) texts.tags.set(tag, text)
  for (const [name, example] of Object.entries(examples)) texts.examples.set(name, example)
  if (introduction !== undefined) texts.introductions.push(introduction)
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
} as const

const PARAMETERS = new Set(['params', 'querystring', 'headers'])

type Security = Record<string, string[]>[]

function securityOf(config: { isPublic?: boolean; ownCredentials?: boolean } | undefined): Security {
  if (config?.isPublic === true) return []
  return config?.ownCredentials === true ? [{ client: [] }, { bearer: [] }] : [{ bearer: [] }]
}

type Document = {
  info: { description?: string }
  tags?: { name: string; description?: string }[]
  paths?: Paths
  components?: object
}

export function registerOpenApi(app: HttpApp, { version }: { version: string }): void {
  const plain = app as unknown as FastifyInstance
  const names = createSchemaNames()
  const texts: Texts = { tags: new Map(), examples: new Map(), introductions: [] }
  textsOf.set(app, texts)
  /** By operation id as the path gives it. */
  const mediaTypes = new Map<string, readonly string[]>()

  function complete(made: object): object {
    const document = names.refer(made, texts.examples) as Document
    const paths = completeOperations(document.paths ?? {})
    for (const operations of Object.values(paths)) {
      for (const operation of Object.values(operations)) {
        const types = mediaTypes.get(operation.operationId ?? '')
        if (types !== undefined && operation.responses !== undefined)
          operation.responses = withMediaTypes(operation.responses, types)
      }
    }
    const used = new Set(
      Object.values(paths)
        .flatMap((operations) => Object.values(operations))
        .flatMap((operation) => (operation as { tags?: string[] }).tags ?? []),
    )
    const tags = [...used].toSorted().map((name) => ({ name, ...descriptionOf(texts.tags.get(name)) }))
    const description = [document.info.description, ...texts.introductions].join('\n\n')
    const components = { ...document.components, responses: refusalResponses() }
    return { ...document, info: { ...document.info, description }, tags, paths, components }
  }

  // Called instead of registered: what is registered is loaded in a later turn and misses the routes added before it.
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
      if (config?.mediaType !== undefined) {
        for (const method of [route.method].flat()) {
          const path = url.replaceAll(/:([a-z_]+)/g, '{$1}').replace('*', '{*}')
          mediaTypes.set(operationIdOf(method, path), [config.mediaType].flat())
        }
      }
      const action = config?.action === undefined ? undefined : `Needs the action \`${config.action}\`.`
      const description = [schema?.description, action].filter((part) => part !== undefined).join('\n\n')
      const marked = Object.entries(schema ?? {}).map(([part, value]) => {
        if (part === 'body' || part === 'response') return [part, names.mark(value)]
        return [part, PARAMETERS.has(part) ? names.spread(value) : value]
      })
      return {
        schema: { ...Object.fromEntries(marked), security: securityOf(config), ...descriptionOf(description) },
        url,
      }
    },
  }
  swagger(plain, options, () => undefined)
  plain.get('/openapi.json', { config: { isPublic: true }, schema: { hide: true } }, () => plain.swagger())
  registerDocsPage(plain, () => plain.swagger())
}

function descriptionOf(description: string | undefined): { description?: string } {
  return description === undefined || description === '' ? {} : { description }
}
