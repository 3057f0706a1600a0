/** Wire shapes of profiles: templates of device configurations (contract 9.1, decision 0037). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET, documented, recordOf } from '#http/index.ts'
import { Id, Metadata, Name, RequiredName, Timestamp } from '#api/identity/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { MAX_OUTPUT_CHARS } from './template/index.ts'

const MAX_SLOTS = 64
const MAX_SLOT_CHARS = 128
const MAX_FIELDS = 64

export const FORMATS = ['go-template', 'raw', 'json', 'yaml', 'toml'] as const
export type ContentFormat = (typeof FORMATS)[number]

export const CONTENT_TYPES = ['application/json', 'application/yaml', 'application/toml', 'text/plain'] as const
export type ContentType = (typeof CONTENT_TYPES)[number]

/** Entity types that can be bound to a slot. */
export const BINDING_TYPES = ['client', 'channel'] as const
export type BindingType = (typeof BINDING_TYPES)[number]

const Format = Type.Enum([...FORMATS], {
  description:
    '`go-template`: rendered template; `raw`: template without rendering; `json`, `yaml` and `toml`: rendered, parsed and serialized again',
})
const ContentTypeName = Type.Enum([...CONTENT_TYPES], {
  description: 'Content type; the result is validated against it',
})
const Template = Type.String({
  maxLength: MAX_OUTPUT_CHARS,
  description: 'Template in a subset of Go text/template with .Device, .Vars and .Bindings',
})

export const SlotName = Type.String({ minLength: 1, maxLength: MAX_SLOT_CHARS })

export const BindingSlot = Type.Object(
  {
    name: SlotName,
    type: Type.Enum([...BINDING_TYPES]),
    required: Type.Optional(
      Type.Boolean({ default: false, description: 'Rendering fails without a binding of the slot' }),
    ),
    fields: Type.Optional(
      Type.Array(Type.String({ maxLength: MAX_SLOT_CHARS }), {
        maxItems: MAX_FIELDS,
        description: 'Fields that the template uses, as a note for users who bind the slot; not checked',
      }),
    ),
  },
  documented({}, 'BindingSlot'),
)
export type BindingSlot = Static<typeof BindingSlot>

const fields = {
  description: Type.Optional(Type.String({ maxLength: 1024 })),
  content_format: Type.Optional(Format),
  template_format: Type.Optional(Format),
  content_type: Type.Optional(ContentTypeName),
  content_template: Type.Optional(Template),
  defaults: Type.Optional(Metadata),
  binding_slots: Type.Optional(Type.Array(BindingSlot, { maxItems: MAX_SLOTS })),
}

export const NewProfile = Type.Object({ name: RequiredName, ...fields }, { $id: 'BootstrapProfileCreate' })
export type NewProfile = Static<typeof NewProfile>

export const ProfileUpdate = Type.Object(
  { name: Type.Optional(RequiredName), ...fields },
  { description: 'Change of a profile; absent fields are unchanged' },
)
export type ProfileUpdate = Static<typeof ProfileUpdate>

export const ProfileView = Type.Object(
  {
    id: Id,
    domain_id: Id,
    name: Type.String(),
    description: Type.String(),
    content_format: Format,
    template_format: Type.Enum([...FORMATS], { description: 'Alias of `content_format`' }),
    content_type: ContentTypeName,
    content_template: Type.String(),
    defaults: recordOf(Type.Unknown(), { description: 'Default values of variables' }),
    binding_slots: Type.Array(BindingSlot),
    version: Type.Integer({ description: 'Version; increases by one with each change' }),
    created_at: Timestamp,
    updated_at: Timestamp,
  },
  { $id: 'BootstrapProfile', description: 'Template of device configurations' },
)
export type ProfileView = Static<typeof ProfileView>

export const ProfileQuery = Type.Object({ ...pageQuery(), name: Type.Optional(Name) })
export type ProfileQuery = Static<typeof ProfileQuery>

export const ProfilePage = Type.Object({ ...pageFields, profiles: Type.Array(ProfileView) })

export const SlotsView = Type.Object({ binding_slots: Type.Array(BindingSlot) })

/** A slot and its binding. */
export const BindingView = Type.Object({
  config_id: Id,
  slot: Type.String(),
  type: Type.Enum([...BINDING_TYPES]),
  resource_id: Id,
  snapshot: recordOf(Type.Unknown(), { description: 'Current values for the template' }),
  updated_at: Timestamp,
})
export type BindingView = Static<typeof BindingView>

export const RenderedView = Type.Object({ content: Type.String(SECRET), content_type: ContentTypeName })
