/** The variables of an expression, with their types. A variable that a record does not have is undefined. */

/** The client that published a record. A class, because the checker of types knows its fields by it. */
export class RuleClient {
  readonly id: string
  readonly name: string
  readonly tags: readonly string[]
  readonly metadata: Readonly<Record<string, unknown>>

  constructor(id: string, name: string, tags: readonly string[], metadata: Readonly<Record<string, unknown>>) {
    this.id = id
    this.name = name
    this.tags = tags
    this.metadata = metadata
  }
}

export type RuleVariables = {
  value?: number | undefined
  string_value?: string | undefined
  bool_value?: boolean | undefined
  name?: string | undefined
  unit?: string | undefined
  /** The time of the record. */
  time: Date
  /** The id of the channel. */
  channel: string
  subtopic: string
  protocol: string
  client: RuleClient
  /** The parsed payload of a JSON message that is not SenML. */
  json?: unknown
  /** The desired document of a client, in rules about its state; the next three are about that state too. */
  desired?: unknown
  reported?: unknown
  delta?: unknown
  online?: boolean | undefined
}

export const VARIABLE_TYPES: Readonly<Record<keyof RuleVariables, string>> = {
  value: 'double',
  string_value: 'string',
  bool_value: 'bool',
  name: 'string',
  unit: 'string',
  time: 'google.protobuf.Timestamp',
  channel: 'string',
  subtopic: 'string',
  protocol: 'string',
  client: 'RuleClient',
  json: 'dyn',
  desired: 'dyn',
  reported: 'dyn',
  delta: 'dyn',
  online: 'bool',
}

/** The variables that only rules about the state of clients have. */
export const STATE_VARIABLES = ['desired', 'reported', 'delta', 'online'] as const satisfies (keyof RuleVariables)[]

export const CLIENT_FIELDS: Readonly<Record<keyof RuleClient, string>> = {
  id: 'string',
  name: 'string',
  tags: 'list<string>',
  metadata: 'map<string, dyn>',
}
