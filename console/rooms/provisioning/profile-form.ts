/** What the form of a profile makes of its fields. Pure. */
import { formatJson, parseJson } from '../../api/json.ts'
import type { BootstrapProfile, BootstrapProfileCreate } from '../../api/operations.ts'

export type Slot = BootstrapProfile['binding_slots'][number]
type Format = BootstrapProfile['content_format']
type ContentType = BootstrapProfile['content_type']

export const FORMATS: readonly (readonly [Format, string])[] = [
  ['json', 'JSON: checked, and values between quotation marks are escaped'],
  ['yaml', 'YAML: checked'],
  ['toml', 'TOML: checked'],
  ['go-template', 'the rendered text as it is'],
  ['raw', 'the template itself, without rendering'],
]

const CONTENT_TYPES: Readonly<Record<Format, ContentType>> = {
  json: 'application/json',
  yaml: 'application/yaml',
  toml: 'application/toml',
  'go-template': 'text/plain',
  raw: 'text/plain',
}

/** The fields, as texts. */
export type ProfileForm = {
  readonly name: string
  readonly description: string
  readonly format: Format
  readonly template: string
  readonly defaults: string
  readonly slots: readonly Slot[]
}

/** A new profile begins with a template that can be saved. */
const EXAMPLE: ProfileForm = {
  name: '',
  description: '',
  format: 'json',
  template:
    '{\n  "broker": "{{.Vars.broker}}",\n  "username": "{{.Bindings.device.Snapshot.id}}",\n  "password": "{{.Bindings.device.Secret.secret}}",\n  "topic": "m/{{.Device.DomainID}}/c/{{.Bindings.telemetry.Snapshot.id}}"\n}\n',
  defaults: '{\n  "broker": "mqtts://broker.example.com:8883"\n}',
  slots: [
    { name: 'device', type: 'client', required: true },
    { name: 'telemetry', type: 'channel', required: true },
  ],
}

export const formOf = (profile: BootstrapProfile | undefined): ProfileForm =>
  profile === undefined
    ? EXAMPLE
    : {
        name: profile.name,
        description: profile.description,
        format: profile.content_format,
        template: profile.content_template,
        defaults: formatJson(profile.defaults, 2),
        slots: profile.binding_slots,
      }

/** An object of JSON. Throws with a sentence for the field. */
export function parseValues(text: string): Record<string, unknown> {
  if (text.trim() === '') return {}
  let value: unknown
  try {
    value = parseJson(text)
  } catch (error) {
    throw new Error(`The values are no JSON: ${(error as Error).message}`, { cause: error })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error('The values are an object of JSON, such as {"broker": "mqtt.example.com"}')
  return value as Record<string, unknown>
}

/** `stored`: the profile that is changed. Its content type stays as long as its format does. */
export function bodyOf(form: ProfileForm, stored: BootstrapProfile | undefined): BootstrapProfileCreate {
  const isSameFormat = stored?.content_format === form.format
  return {
    name: form.name.trim(),
    description: form.description.trim(),
    content_format: form.format,
    content_type: isSameFormat ? stored.content_type : CONTENT_TYPES[form.format],
    content_template: form.template,
    defaults: parseValues(form.defaults),
    binding_slots: form.slots.map((slot) => ({ ...slot, name: slot.name.trim() })),
  }
}
