/**
 * Defence in depth for the journal: it redacts fields with these names in every record. `metadata` belongs to the user
 * and is not redacted, except for the external key of a gateway, which provisioning stores there.
 */

/** Names of fields that contain a secret. */
const SECRET_NAME =
  /^(.*_)?(secret|secrets|secret_hash|secret_mac|secret_sealed|password|passwd|token|tokens|jwt|private_key|api_key|external_key|credentials|authorization|cookie|hash|mac)$/i

/** Fields that refer to a token without containing it. */
const HARMLESS = new Set(['token_type', 'token_id'])

export const REDACTED = '[redacted]'

function redactFields(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      SECRET_NAME.test(name) && !HARMLESS.has(name) ? REDACTED : name === 'metadata' ? redactGateway(value) : value,
    ]),
  )
}

function redactGateway(metadata: unknown): unknown {
  const isGateway = typeof metadata === 'object' && metadata !== null && 'external_key' in metadata
  return isGateway ? { ...metadata, external_key: REDACTED } : metadata
}

/** Returns the attributes of a record without secrets, also inside `before` and `after`. */
export function redact(attributes: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const clean = redactFields(attributes)
  for (const side of ['before', 'after']) {
    const value = clean[side]
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      clean[side] = redactFields(value as Record<string, unknown>)
  }
  return clean
}
