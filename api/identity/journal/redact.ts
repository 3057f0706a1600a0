/**
 * The last line of defence of the journal: fields of these names never enter it, whoever records them. What a caller
 * keeps in `metadata` is his own and is not looked at, but for the external key of a gateway, which provisioning puts there.
 */

/** Names of fields that hold a secret anywhere in the product. */
const SECRET_NAME =
  /^(.*_)?(secret|secrets|secret_hash|secret_mac|secret_sealed|password|passwd|token|tokens|jwt|private_key|api_key|external_key|credentials|authorization|cookie|hash|mac)$/i

/** Words that name a token or a secret without being one. */
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

/** The attributes of a record without secrets, those inside `before` and `after` included. */
export function redact(attributes: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const clean = redactFields(attributes)
  for (const side of ['before', 'after']) {
    const value = clean[side]
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      clean[side] = redactFields(value as Record<string, unknown>)
  }
  return clean
}
