// The OpenAPI 3.1 document is valid, complete and readable; that it is fresh `npm run check` compares
import { Compile } from 'typebox/compile'
import type { TSchema } from 'typebox'
import { describe, expect, test } from 'vitest'
import { documentText, publishedDocument, wholeDocument } from '../harness/openapi.ts'

type Json = Record<string, unknown>
type Parameter = { name: string; in: string; required?: boolean; description?: string; schema: Json }
type Response = { description?: string; headers?: Json; content?: Record<string, { schema: Json }>; $ref?: string }
type Operation = {
  operationId: string
  summary?: string
  description?: string
  tags?: string[]
  'x-paths'?: string[]
  security?: Record<string, unknown>[]
  parameters?: Parameter[]
  requestBody?: { required: boolean; content: Record<string, { schema: Json }> }
  responses: Record<string, Response>
}
type Document = {
  openapi: string
  info: { title: string; version: string; description: string }
  tags: { name: string; description?: string }[]
  security: Record<string, unknown>[]
  paths: Record<string, Record<string, Operation>>
  components: {
    schemas: Record<string, Json>
    parameters: Record<string, Parameter>
    responses: Record<string, Response>
    securitySchemes: Record<string, Json>
  }
}

const isIcebergError = (response: unknown) =>
  JSON.stringify(response)?.includes('#/components/schemas/IcebergError') === true

/** For each operation, with the schemas that they share. A document that grows above these says something twice. */
const MAX_BYTES_OF_OPERATION = 2_000
const MAX_LINES = 30_000

/** As readers get it. */
const published = publishedDocument() as Document
/** With an operation for each path. */
const document = wholeDocument() as Document
const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path, method, operation, name: `${method} ${path}` })),
)

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value)

/**
 * The OpenAPI 3.1 meta-schema, as far as the document uses the specification: the fields of each object (section 4.8), with the
 * kind of each value. A field that is not here the specification does not know either, or the document never has.
 */
type Kind = 'string' | 'boolean' | 'any' | `map ${string}` | `list ${string}` | ObjectName
type ObjectName = keyof typeof OBJECTS
type Shape = { required: readonly string[]; fields: Readonly<Record<string, string>>; extensible?: boolean }
const OBJECTS = {
  Document: {
    required: ['openapi', 'info', 'paths'],
    fields: {
      openapi: 'string',
      info: 'Info',
      servers: 'list Server',
      paths: 'map PathItem',
      components: 'Components',
      security: 'list any',
      tags: 'list Tag',
      externalDocs: 'any',
      jsonSchemaDialect: 'string',
      webhooks: 'map PathItem',
    },
  },
  Info: {
    required: ['title', 'version'],
    fields: {
      title: 'string',
      summary: 'string',
      description: 'string',
      termsOfService: 'string',
      contact: 'any',
      license: 'License',
      version: 'string',
    },
  },
  License: { required: ['name'], fields: { name: 'string', identifier: 'string', url: 'string' } },
  Server: { required: ['url'], fields: { url: 'string', description: 'string', variables: 'any' } },
  Tag: { required: ['name'], fields: { name: 'string', description: 'string', externalDocs: 'any' } },
  PathItem: {
    required: [],
    fields: Object.fromEntries(
      ['get', 'put', 'post', 'delete', 'options', 'head', 'patch', 'trace'].map((method) => [method, 'Operation']),
    ),
  },
  Operation: {
    required: ['responses'],
    fields: {
      tags: 'list string',
      summary: 'string',
      description: 'string',
      externalDocs: 'any',
      operationId: 'string',
      parameters: 'list Parameter',
      requestBody: 'RequestBody',
      responses: 'map Response',
      callbacks: 'any',
      deprecated: 'boolean',
      security: 'list any',
      servers: 'list Server',
    },
  },
  Parameter: {
    required: ['name', 'in', 'schema'],
    fields: {
      name: 'string',
      in: 'string',
      description: 'string',
      required: 'boolean',
      deprecated: 'boolean',
      allowEmptyValue: 'boolean',
      style: 'string',
      explode: 'boolean',
      allowReserved: 'boolean',
      schema: 'Schema',
      example: 'any',
      examples: 'any',
    },
  },
  RequestBody: {
    required: ['content'],
    fields: { description: 'string', content: 'map MediaType', required: 'boolean' },
  },
  Response: {
    required: ['description'],
    fields: { description: 'string', headers: 'map Header', content: 'map MediaType', links: 'any' },
  },
  Header: {
    required: ['schema'],
    fields: { description: 'string', required: 'boolean', deprecated: 'boolean', schema: 'Schema', example: 'any' },
  },
  MediaType: { required: [], fields: { schema: 'Schema', example: 'any', examples: 'any', encoding: 'any' } },
  Components: {
    required: [],
    fields: {
      schemas: 'map Schema',
      responses: 'map Response',
      parameters: 'map Parameter',
      securitySchemes: 'map SecurityScheme',
      headers: 'map Header',
      requestBodies: 'map RequestBody',
    },
  },
  SecurityScheme: {
    required: ['type'],
    fields: {
      type: 'string',
      description: 'string',
      name: 'string',
      in: 'string',
      scheme: 'string',
      bearerFormat: 'string',
    },
  },
} as const satisfies Record<string, Shape>

/** Keywords of JSON Schema 2020-12 and what each holds. */
const SCHEMA_KEYWORDS: Record<string, (value: unknown) => boolean> = {
  $ref: (value) => typeof value === 'string',
  type: (value) =>
    [value]
      .flat()
      .every((one) => ['string', 'number', 'integer', 'boolean', 'object', 'array', 'null'].includes(String(one))),
  enum: (value) => Array.isArray(value) && value.length > 0,
  const: () => true,
  title: (value) => typeof value === 'string',
  description: (value) => typeof value === 'string',
  default: () => true,
  examples: Array.isArray,
  deprecated: (value) => typeof value === 'boolean',
  readOnly: (value) => typeof value === 'boolean',
  format: (value) => typeof value === 'string',
  contentEncoding: (value) => typeof value === 'string',
  contentMediaType: (value) => typeof value === 'string',
  pattern: (value) => typeof value === 'string' && new RegExp(value, 'u') instanceof RegExp,
  required: (value) =>
    Array.isArray(value) && value.every((one) => typeof one === 'string') && new Set(value).size === value.length,
  uniqueItems: (value) => typeof value === 'boolean',
  ...Object.fromEntries(
    ['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'].map((name) => [
      name,
      (value: unknown) => Number.isInteger(value) && Number(value) >= 0,
    ]),
  ),
  ...Object.fromEntries(
    ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'].map((name) => [
      name,
      (value: unknown) => typeof value === 'number',
    ]),
  ),
}
const SCHEMA_MAPS = new Set(['properties', 'patternProperties', '$defs', 'dependentSchemas'])
const SCHEMA_LISTS = new Set(['anyOf', 'oneOf', 'allOf', 'prefixItems'])
const SCHEMA_SINGLES = new Set([
  'items',
  'additionalProperties',
  'propertyNames',
  'not',
  'contains',
  'unevaluatedProperties',
])

function schemaFaults(schema: unknown, at: string): string[] {
  if (typeof schema === 'boolean') return []
  if (!isObject(schema)) return [`${at} is no schema`]
  return Object.entries(schema).flatMap(([keyword, value]) => {
    const place = `${at}.${keyword}`
    if (SCHEMA_MAPS.has(keyword))
      return isObject(value)
        ? Object.entries(value).flatMap(([key, item]) => schemaFaults(item, `${place}.${key}`))
        : [`${place} is no object`]
    if (SCHEMA_LISTS.has(keyword))
      return Array.isArray(value) && value.length > 0
        ? value.flatMap((item, index) => schemaFaults(item, `${place}[${index}]`))
        : [`${place} is no list`]
    if (SCHEMA_SINGLES.has(keyword)) return schemaFaults(value, place)
    // JSON Schema 2020-12 ignores keywords that it does not know; these are OpenAPI's extensions (section 4.9).
    if (keyword.startsWith('x-')) return []
    const check = SCHEMA_KEYWORDS[keyword]
    if (check === undefined) return [`${place}: JSON Schema 2020-12 knows no such keyword`]
    return check(value) ? [] : [`${place} is wrong: ${JSON.stringify(value)}`]
  })
}

function faultsOf(kind: string, value: unknown, at: string): string[] {
  if (kind === 'any') return []
  if (kind === 'string' || kind === 'boolean') return typeof value === kind ? [] : [`${at} is no ${kind}`]
  if (kind === 'Schema') return schemaFaults(value, at)
  if (kind.startsWith('list '))
    return Array.isArray(value)
      ? value.flatMap((item, index) => faultsOf(kind.slice(5), item, `${at}[${index}]`))
      : [`${at} is no list`]
  if (!isObject(value)) return [`${at} is no object`]
  if (kind.startsWith('map '))
    return Object.entries(value).flatMap(([key, item]) => faultsOf(kind.slice(4), item, `${at}.${key}`))
  if (typeof value['$ref'] === 'string') return []
  const shape: Shape = OBJECTS[kind as ObjectName]
  return [
    ...shape.required.filter((field) => !(field in value)).map((field) => `${at} lacks ${field}`),
    ...Object.entries(value).flatMap(([field, item]) => {
      if (field.startsWith('x-')) return []
      const next = shape.fields[field]
      return next === undefined
        ? [`${at} has the unknown field ${field}`]
        : faultsOf(next as Kind, item, `${at}.${field}`)
    }),
  ]
}

function valuesIn(value: unknown): unknown[] {
  const inside = Array.isArray(value) ? value : isObject(value) ? Object.values(value) : []
  return [value, ...inside.flatMap(valuesIn)]
}

function refsOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(refsOf)
  if (!isObject(value)) return []
  return [...(typeof value['$ref'] === 'string' ? [value['$ref']] : []), ...Object.values(value).flatMap(refsOf)]
}

/** A schema with what it refers to put in, as a validator needs it; a schema that holds itself ends after some levels. */
function resolved(schema: unknown, depth = 0): unknown {
  if (Array.isArray(schema)) return schema.map((item) => resolved(item, depth))
  if (!isObject(schema)) return schema
  const name = typeof schema['$ref'] === 'string' ? schema['$ref'].split('/').at(-1) : undefined
  if (name !== undefined) return depth > 5 ? {} : resolved(document.components.schemas[name], depth + 1)
  return Object.fromEntries(Object.entries(schema).map(([key, item]) => [key, resolved(item, depth)]))
}

describe('the OpenAPI document', () => {
  test('is valid OpenAPI 3.1: no object has an unknown or missing field, every schema is JSON Schema 2020-12', () => {
    expect(published.openapi).toBe('3.1.0')
    expect(operations.length).toBeGreaterThan(500)
    expect(faultsOf('Document', published, 'document')).toEqual([])
    expect(faultsOf('Document', document, 'document')).toEqual([])
  })

  test('the check of validity finds faults', () => {
    const broken = structuredClone(published) as unknown as Json
    const [path] = Object.keys(published.paths)
    const item = (broken['paths'] as Record<string, Record<string, Json>>)[path as string] as Record<string, Json>
    const operation = Object.values(item)[0] as Json
    operation['summry'] = 'x'
    operation['responses'] = { 200: {} }
    ;(broken['components'] as Record<string, Json>)['schemas'] = { Bad: { type: 'text', nullable: true } }
    const faults = faultsOf('Document', broken, 'd').join('\n')
    for (const fault of ['unknown field summry', 'lacks description', 'no such keyword', 'type is wrong'])
      expect(faults).toContain(fault)
  })

  test('every reference is resolved, and every component is referenced', () => {
    const refs = new Set(refsOf(published))
    const lookUp = (ref: string) =>
      ref
        .slice(2)
        .split('/')
        .reduce<unknown>((value, key) => (isObject(value) ? value[key] : undefined), published)
    expect([...refs].filter((ref) => lookUp(ref) === undefined)).toEqual([])
    const unused = (['schemas', 'parameters', 'responses'] as const).flatMap((kind) =>
      Object.keys(published.components[kind])
        .map((name) => `#/components/${kind}/${name}`)
        .filter((ref) => !refs.has(ref)),
    )
    expect(unused).toEqual([])
  })

  test('a part that operations share is said once, and so is an operation that paths share', () => {
    const all = Object.values(published.paths).flatMap((item) => Object.values(item))
    const repeated = (parts: unknown[]) => {
      const texts = parts.map((part) => JSON.stringify(part)).filter((text) => !text.startsWith('{"$ref"'))
      return texts.filter((text, index) => texts.indexOf(text) !== index)
    }
    expect(repeated(all.flatMap(({ parameters = [] }) => parameters))).toEqual([])
    expect(repeated(all.flatMap(({ responses }) => Object.values(responses)))).toEqual([])
    expect(all.length).toBeLessThan(0.6 * operations.length)
    const roles = published.paths['/{domain_id}/{entity_type}/{entity_id}/roles/{role_id}']?.['get']
    expect(roles?.['x-paths']).toContain('/domains/{domain_id}/role/{role_id}')
    expect(roles?.['x-paths']).toContain('/{domain_id}/channels/{channel_id}/roles/{role_id}')
    expect(document.paths['/groups/{group_id}/role/{role_id}']?.['get']?.parameters?.map(({ name }) => name)).toEqual([
      'group_id',
      'role_id',
    ])
  })

  test('a field that many schemas share is said once, and so are the credentials of most operations', () => {
    const texts = valuesIn(published.paths).concat(valuesIn(published.components.schemas))
    const { schemas } = published.components
    for (const name of ['Id', 'Timestamp', 'QuotaUsage', 'Trigger', 'LastError']) {
      const { examples: _examples, ...schema } = schemas[name] ?? {}
      expect(schema, name).toHaveProperty('type')
      const text = JSON.stringify(schema)
      expect(
        texts.filter((value) => isObject(value) && JSON.stringify(value) === text),
        name,
      ).toHaveLength(1)
    }
    expect(published.security).toEqual([{ bearer: [] }])
    const own = Object.values(published.paths).flatMap((item) => Object.values(item).map(({ security }) => security))
    expect(own.filter((security) => JSON.stringify(security) === JSON.stringify(published.security))).toEqual([])
  })

  test('the file stays small', () => {
    const text = documentText()
    expect(Buffer.byteLength(text) / operations.length).toBeLessThan(MAX_BYTES_OF_OPERATION)
    expect(text.split('\n').length).toBeLessThan(MAX_LINES)
  })

  test('path parameters of the path and of its operation are the same', () => {
    const faults = operations.filter(({ path, operation }) => {
      const inPath = [...path.matchAll(/\{([^}]+)\}/g)].map(([, name]) => String(name)).toSorted()
      const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === 'path')
      return (
        JSON.stringify(inPath) !== JSON.stringify(declared.map(({ name }) => name).toSorted()) ||
        declared.some(({ required }) => required !== true)
      )
    })
    expect(faults.map(({ name }) => name)).toEqual([])
  })

  test('no parameter is repeated, each is described, and one with a default is optional', () => {
    const faults = operations.flatMap(({ name, operation }) =>
      (operation.parameters ?? []).flatMap((parameter, index, all) => {
        const isTwice = all.findIndex((other) => other.name === parameter.name && other.in === parameter.in) !== index
        const isBare = (parameter.description ?? '') === '' || parameter.description === 'UUID'
        const isForced = parameter.in !== 'path' && parameter.required === true && 'default' in parameter.schema
        return isTwice || isBare || isForced ? [`${name}: ${parameter.name}`] : []
      }),
    )
    expect(faults).toEqual([])
  })

  test('each operation has its own name, a summary, a described tag and a security rule', () => {
    const ids = operations.map(({ operation }) => operation.operationId)
    expect(new Set(ids).size).toBe(ids.length)
    expect(ids.filter((id) => !/^[a-z][A-Za-z0-9]*$/.test(id))).toEqual([])
    expect(operations.filter(({ operation }) => (operation.summary ?? '') === '').map(({ name }) => name)).toEqual([])
    const described = new Set(
      document.tags.filter(({ description }) => description !== undefined).map(({ name }) => name),
    )
    const faults = operations.filter(
      ({ operation: { tags = [], security } }) =>
        tags.length !== 1 || !described.has(tags[0] ?? '') || security === undefined,
    )
    expect(faults.map(({ name, operation }) => `${name} ${operation.tags?.join()}`)).toEqual([])
    const known = new Set(Object.keys(document.components.securitySchemes))
    expect(
      operations
        .flatMap(({ operation }) => (operation.security ?? []).flatMap((one) => Object.keys(one)))
        .filter((scheme) => !known.has(scheme)),
    ).toEqual([])
  })

  test('each operation that requires a token declares it and 401, and every operation declares its errors', () => {
    const faults = operations.flatMap(({ name, operation }) => {
      const statuses = ['400', '500', '503', ...((operation.security ?? []).length > 0 ? ['401'] : [])]
      return (
        statuses
          .filter((status) => operation.responses[status]?.$ref !== `#/components/responses/Refusal${status}`)
          // The catalogue answers as its own specification says.
          .filter((status) => !name.includes('/iceberg/v1/') || !isIcebergError(operation.responses[status]))
          .map((status) => `${name} ${status}`)
      )
    })
    // A program that cannot serve says what it lacks.
    expect(faults).toEqual(['get /ready 503'])
    for (const response of Object.values(document.components.responses)) expect(response.description).toMatch(/\S/)
  })

  test('every response has the request id, and the errors are those of the edge', () => {
    const faults = operations.flatMap(({ name, operation }) =>
      ['405', '413', ...Object.keys(operation.responses)].flatMap((status) => {
        const response = operation.responses[status]
        const whole = response?.$ref === undefined ? response : document.components.responses[`Refusal${status}`]
        return whole?.headers?.['X-Request-Id'] === undefined ? [`${name} ${status}`] : []
      }),
    )
    expect(faults).toEqual([])
    expect(Object.keys(document.components.responses['Refusal405']?.headers ?? {})).toContain('Allow')
  })

  test('no name prevents a generated client from compiling', () => {
    expect(operations.filter(({ path }) => path.includes('*')).map(({ name }) => name)).toEqual([])
    // Go makes a function NewClient for every Client, Rust an enum Error for the values of a field `error` of Error.
    const names = Object.keys(document.components.schemas)
    expect(names.filter((name) => name.startsWith('New'))).toEqual([])
    expect(document.components.schemas['Error']?.['properties']).toMatchObject({
      error: { $ref: '#/components/schemas/ErrorKind' },
    })
    const flags = valuesIn(document).filter(
      (value) =>
        isObject(value) && Array.isArray(value['enum']) && value['enum'].some((one) => typeof one !== 'string'),
    )
    expect(flags).toEqual([])
    // Java makes an enumeration of a type with one value, whose constants are called after it.
    expect(valuesIn(document).filter((value) => isObject(value) && typeof value['const'] === 'boolean')).toEqual([])
    // A field is only a field: what stands for the document alone has been put in place.
    expect(JSON.stringify(document)).not.toContain('x-documented')
  })

  test('the array of a page is required', () => {
    const faults = operations.flatMap(({ name, operation }) =>
      Object.entries(operation.responses).flatMap(([status, response]) => {
        const schema = resolved(response.content?.['application/json']?.schema ?? {}) as Json
        const properties = (schema['properties'] ?? {}) as Record<string, Json>
        if (properties['total'] === undefined || properties['offset'] === undefined) return []
        return Object.entries(properties)
          .filter(([field, { type }]) => type === 'array' && !(schema['required'] as string[]).includes(field))
          .map(([field]) => `${name} ${status}: ${field}`)
      }),
    )
    expect(faults).toEqual([])
  })

  test('each body declares whether it is optional, and its schema in each media type', () => {
    const at = (method: string, path: string) => document.paths[path]?.[method]?.requestBody
    for (const path of [
      '/users/tokens/refresh',
      '/tasks/{task_id}/start',
      '/tasks/{task_id}/invoke',
      '/workers/tokens',
    ])
      expect(at('post', path)?.required, path).toBe(false)
    expect(at('post', '/users')?.required).toBe(true)
    expect(Object.keys(at('put', '/modules')?.content ?? {})).toContain('application/wasm')
    expect(at('put', '/tasks/{task_id}/upload')?.content['multipart/form-data']?.schema).toMatchObject({
      required: ['file'],
    })
    const ocsp = at('post', '/certs/ocsp')?.content ?? {}
    expect(ocsp['application/ocsp-request']?.schema).toEqual({ type: 'string', format: 'binary' })
    expect(ocsp['application/json']?.schema).toMatchObject({ type: 'object' })
    const logs = document.paths['/tasks/{task_id}/logs']?.['get']?.responses['200']
    expect(Object.keys(logs?.content ?? {})).toEqual(['text/plain', 'application/octet-stream', 'text/event-stream'])
  })

  test('the secret of a device is a credential of exactly the operations that accept it', () => {
    const taking = (scheme: string) =>
      operations
        .filter(({ operation }) => operation.security?.some((one) => scheme in one) === true)
        .map(({ path }) => path)
    const devices = [...new Set(taking('client'))]
    expect(devices.filter((path) => !/\/c\/|\/messages|\/identify$|^\/publish$/.test(path))).toEqual([])
    expect(devices).toContain('/m/{domain_id}/c/{channel_id}')
    expect([...new Set(taking('external_key'))].every((path) => path.includes('/bootstrap'))).toBe(true)
    expect(document.paths['/users']?.['post']?.security).toEqual([{}, { bearer: [] }, { mailed_link: [] }])
    expect(document.paths['/tasks']?.['get']?.security).toEqual([{ bearer: [] }])
  })

  test('texts of a known format declare it', () => {
    const schemaOf = (path: string, wanted: string) =>
      document.paths[path]?.['get']?.parameters?.find(({ name }) => name === wanted)?.schema
    expect(schemaOf('/{domain_id}/clients', 'domain_id')).toMatchObject({ format: 'uuid' })
    expect(schemaOf('/{domain_id}/clients', 'actions')).toMatchObject({ pattern: '^[a-z_]+(,[a-z_]+)*$' })
    expect(schemaOf('/{domain_id}/clients', 'metadata')).toMatchObject({ maxLength: 4096 })
    expect(schemaOf('/invitations', 'relation')?.['enum']).toContain('administrator')
    expect(schemaOf('/m/{domain_id}/c/{channel_id}', 'aggregation')).toMatchObject({
      pattern: '^(max|min|avg|sum|count)(,(max|min|avg|sum|count))*$',
    })
    expect(schemaOf('/m/{domain_id}/c/{channel_id}', 'interval')?.['pattern']).toContain('second|minute')
    expect(document.components.schemas['Action']?.['enum']).toContain('connect_to_channel')
  })

  test('every response has its own description', () => {
    const faults = operations.flatMap(({ name, operation }) =>
      Object.entries(operation.responses)
        .filter(
          ([, response]) =>
            response.$ref === undefined && (response.description ?? 'Default Response') === 'Default Response',
        )
        .map(([status]) => `${name} ${status}`),
    )
    expect(faults).toEqual([])
  })

  test('the main resources have examples, and each matches its schema', () => {
    const { schemas } = document.components
    for (const name of [
      'User',
      'UserCreate',
      'Domain',
      'DomainCreate',
      'Client',
      'ClientCreate',
      'Channel',
      'ChannelCreate',
      'Group',
      'GroupCreate',
      'Role',
      'TokenPair',
      'JournalItem',
      'Error',
    ])
      expect(schemas[name]?.['examples'], name).toHaveLength(1)
    const faults = Object.entries(schemas).flatMap(([name, schema]) => {
      const validator = Compile(resolved(schema) as TSchema)
      return ((schema['examples'] ?? []) as unknown[]).flatMap((example) =>
        [...validator.Errors(example)].map((error) => `${name}: ${JSON.stringify(error)}`),
      )
    })
    expect(faults).toEqual([])
  })
})
