/** What every form that sets up a device asks for: how the device identifies itself, and the name of its client. */
import { TextField } from '../../design/controls.tsx'

export type DeviceIdentity = { externalId: string; externalKey: string; name: string }

const KEY_BYTES = 16

export const newKey = () =>
  [...crypto.getRandomValues(new Uint8Array(KEY_BYTES))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

export const newDeviceIdentity = (): DeviceIdentity => ({ externalId: '', externalKey: newKey(), name: '' })

/** The fields of a request. */
export const identityBody = ({ externalId, externalKey, name }: DeviceIdentity) => ({
  external_id: externalId.trim(),
  external_key: externalKey,
  ...(name.trim() === '' ? {} : { name: name.trim() }),
})

type Props = {
  identity: DeviceIdentity
  onChange: (identity: DeviceIdentity) => void
  /** In a dialog, the focus begins here. */
  autoFocus?: boolean
}

export function DeviceIdentityFields({ identity, onChange, autoFocus = false }: Props) {
  const change = (field: keyof DeviceIdentity) => (value: string) => onChange({ ...identity, [field]: value })
  return (
    <>
      <TextField
        label="External id"
        field="external_id"
        value={identity.externalId}
        onChange={change('externalId')}
        autoFocus={autoFocus}
        required
        maxLength={1024}
        hint="What the device knows of itself, such as its serial number or MAC address"
      />
      <TextField
        label="External key"
        field="external_key"
        value={identity.externalKey}
        onChange={change('externalKey')}
        required
        maxLength={1024}
        autoComplete="off"
        hint="The device proves with it that it is the device. At least 16 characters."
      />
      <TextField
        label="Name"
        field="name"
        value={identity.name}
        onChange={change('name')}
        maxLength={1024}
        hint="Optional"
      />
    </>
  )
}
