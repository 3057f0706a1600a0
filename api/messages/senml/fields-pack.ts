/** The fields of a flat JSON object as a pack, for devices that read SenML and no JSON of other shapes. Pure. */
import { nameFault } from './names.ts'

type Record = { n: string } & ({ v: number } | { vs: string } | { vb: boolean })

/** JSON of a pack with one record for each field. Undefined: a field is a list, an object, null or no exact number, or its name is no name of SenML. */
export function packOfFields(fields: Readonly<{ [name: string]: unknown }>): Buffer | undefined {
  const records: Record[] = []
  for (const [n, value] of Object.entries(fields)) {
    if (nameFault(n) !== undefined) return undefined
    if (typeof value === 'string') records.push({ n, vs: value })
    else if (typeof value === 'boolean') records.push({ n, vb: value })
    else if (typeof value === 'number' && Number.isFinite(value)) records.push({ n, v: value })
    else return undefined
  }
  return Buffer.from(JSON.stringify(records))
}
