/**
 * Converts the records that triggered it to metric units and publishes them to the grant named "converted". Units are
 * those of SenML (RFC 8428 section 12.1 and its registry), and the usual names of others.
 */
import { send } from 'skein:messaging/producer@0.1.0'

const CONVERSIONS = {
  degF: { unit: 'Cel', convert: (value) => ((value - 32) * 5) / 9 },
  K: { unit: 'Cel', convert: (value) => value - 273.15 },
  psi: { unit: 'Pa', convert: (value) => value * 6894.757293168 },
  bar: { unit: 'Pa', convert: (value) => value * 100000 },
  ft: { unit: 'm', convert: (value) => value * 0.3048 },
  mph: { unit: 'm/s', convert: (value) => value * 0.44704 },
  gal: { unit: 'l', convert: (value) => value * 3.785411784 },
}

export function convert(message) {
  const converted = JSON.parse(message).records.flatMap(({ n, t, u, v }) => {
    const conversion = CONVERSIONS[u]
    if (conversion === undefined || typeof v !== 'number') return []
    return [{ n, t, u: conversion.unit, v: conversion.convert(v) }]
  })
  if (converted.length === 0) return 0
  try {
    send('converted', new TextEncoder().encode(JSON.stringify(converted)))
  } catch (error) {
    // The `err` of an imported function; what is thrown here becomes the `err` of ours.
    throw error.payload?.message ?? String(error)
  }
  return converted.length
}
