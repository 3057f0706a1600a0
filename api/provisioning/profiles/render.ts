/** Renders the content of a profile for a device and validates it against its content type. */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { checkDocument, rewriteDocument } from './documents.ts'
import type { Notation } from './documents.ts'
import type { Profile } from './repository.ts'
import type { BindingType, ContentType } from './schema.ts'
import { MAX_OUTPUT_CHARS, TemplateFault, evaluate, parseTemplate } from './template/index.ts'
import type { Value } from './template/index.ts'

export type RenderBinding = {
  slot: string
  type: BindingType
  resourceId: string
  snapshot: Record<string, unknown>
  secret: Record<string, unknown>
}

export type RenderInput = {
  device: { id: string; externalId: string; domainId: string }
  context: Record<string, unknown>
  bindings: readonly RenderBinding[]
}

export type Rendered = { content: string; contentType: ContentType }

const NOTATIONS: Record<ContentType, Notation | undefined> = {
  'application/json': 'json',
  'application/yaml': 'yaml',
  'application/toml': 'toml',
  'text/plain': undefined,
}

/** Maximum size of variables and bindings as JSON, checked before rendering. */
const MAX_INPUT_CHARS = 1_048_576

/**
 * Renders a profile. Previews and devices use the same function and limits. Throws `unprocessable` with the problem and
 * its place, never with a value.
 */
export async function renderProfile(profile: Profile, input: RenderInput): Promise<Rendered> {
  const { contentFormat, contentType, contentTemplate } = profile
  requireBound(profile, input.bindings)
  requireBounds(profile, input)
  const owner = input.device.domainId
  if (contentFormat === 'raw') return { content: await checked(contentTemplate, contentType, owner), contentType }
  const filled = fill(contentTemplate, contentFormat === 'json', input)
  if (contentFormat === 'go-template') return { content: await checked(filled, contentType, owner), contentType }
  const content = await rewritten(filled, contentFormat, owner)
  if (content.length > MAX_OUTPUT_CHARS) throw refuse(`the result is longer than ${MAX_OUTPUT_CHARS} characters`)
  return { content: await checked(content, contentType, owner), contentType }
}

const refuse = (message: string, cause?: unknown) =>
  new ServiceError('unprocessable', `failed to render the profile: ${message}`, { cause })

function requireBounds({ contentTemplate }: Profile, { context, bindings }: RenderInput): void {
  // Raw templates are not parsed; the parser rejects lone surrogates too.
  if (!contentTemplate.isWellFormed()) throw refuse('the template contains a lone surrogate')
  if (JSON.stringify([context, bindings]).length > MAX_INPUT_CHARS)
    throw refuse(`variables and bindings are longer than ${MAX_INPUT_CHARS} characters of JSON`)
}

function requireBound({ bindingSlots }: Profile, bindings: readonly RenderBinding[]): void {
  const types = new Map(bindings.map(({ slot, type }) => [slot, type]))
  for (const { name, type, required } of bindingSlots) {
    const bound = types.get(name)
    if (bound === undefined && required === true) throw refuse(`the slot ${name} is not bound`)
    if (bound !== undefined && bound !== type)
      throw refuse(`the slot ${name} requires a ${type} but is bound to a ${bound}`)
  }
}

function fill(template: string, isJson: boolean, { device, context, bindings }: RenderInput): string {
  const root = {
    Device: {
      ID: device.id,
      ExternalID: device.externalId,
      DomainID: device.domainId,
      // Name of the domain in current versions of Magistrala.
      WorkspaceID: device.domainId,
    },
    Vars: context,
    Bindings: Object.fromEntries(
      bindings.map(({ slot, type, resourceId, snapshot, secret }) => [
        slot,
        { Type: type, ID: resourceId, Snapshot: snapshot, Secret: secret },
      ]),
    ),
  }
  try {
    return evaluate(parseTemplate(template), root as Value, { isJson })
  } catch (error) {
    throw error instanceof TemplateFault ? refuse(error.message) : error
  }
}

async function checked(text: string, contentType: ContentType, owner: string): Promise<string> {
  const notation = NOTATIONS[contentType]
  if (notation !== undefined) await readAs(notation, checkDocument(notation, text, owner))
  return text
}

/** Serialized in the notation of the profile: TOML templates can be written in JSON, and YAML includes JSON. */
async function rewritten(text: string, notation: Notation, owner: string): Promise<string> {
  return await readAs(notation, rewriteDocument(notation, text, owner))
}

/** Converts errors of parsing to errors of rendering. */
async function readAs<T>(notation: Notation, work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    const name = notation.toUpperCase()
    switch (kindOf(error)) {
      case 'malformed':
        throw refuse(`the result is not valid ${name}`)
      case 'unprocessable':
        throw refuse(`the result cannot be written as ${name}`)
      case 'too_large':
        throw refuse((error as ServiceError).message)
      default:
        throw error
    }
  }
}
