// SPDX-License-Identifier: Apache-2.0
use ujoin_sys as sys;

/// The type of elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DType {
    F32,
    F64,
    F16,
    Bf16,
    I32,
    I64,
    U8,
    /// One that this version of the crate does not know.
    Unknown(i32),
}

impl DType {
    pub(crate) fn of(value: i32) -> Self {
        match value {
            sys::UJOIN_F32 => Self::F32,
            sys::UJOIN_F64 => Self::F64,
            sys::UJOIN_F16 => Self::F16,
            sys::UJOIN_BF16 => Self::Bf16,
            sys::UJOIN_I32 => Self::I32,
            sys::UJOIN_I64 => Self::I64,
            sys::UJOIN_U8 => Self::U8,
            other => Self::Unknown(other),
        }
    }

    pub(crate) fn value(self) -> i32 {
        match self {
            Self::F32 => sys::UJOIN_F32,
            Self::F64 => sys::UJOIN_F64,
            Self::F16 => sys::UJOIN_F16,
            Self::Bf16 => sys::UJOIN_BF16,
            Self::I32 => sys::UJOIN_I32,
            Self::I64 => sys::UJOIN_I64,
            Self::U8 => sys::UJOIN_U8,
            Self::Unknown(other) => other,
        }
    }
}

/// What buffers hold.
///
/// # Safety
/// The type has exactly the size and the values of `DTYPE`, and any bit pattern is one of its values.
pub unsafe trait Element: Copy + Default + Send + Sync + 'static {
    /// What the library calls it.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {
        // SAFETY: the same representation, and every bit pattern is a number.
        $(unsafe impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
elements!(f32 => F32, f64 => F64, F16 => F16, Bf16 => Bf16, i32 => I32, i64 => I64, u8 => U8);

/// A half-precision number (IEEE 754 binary16), by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// A bfloat16 number, the upper half of an `f32`, by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl From<Bf16> for f32 {
    fn from(number: Bf16) -> f32 {
        f32::from_bits(u32::from(number.0) << 16)
    }
}

impl From<f32> for Bf16 {
    /// Rounds to nearest, ties to even; NaN stays NaN.
    fn from(number: f32) -> Bf16 {
        let bits = number.to_bits();
        if number.is_nan() {
            return Bf16((bits >> 16) as u16 | 0x40);
        }
        Bf16((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

impl From<F16> for f32 {
    fn from(number: F16) -> f32 {
        let (sign, exponent, fraction) = (number.0 >> 15, number.0 >> 10 & 0x1f, number.0 & 0x3ff);
        let size = match exponent {
            0 => f32::from(fraction) * 2f32.powi(-24),
            0x1f => f32::from_bits(0x7f80_0000 | u32::from(fraction) << 13),
            _ => f32::from_bits((u32::from(exponent) + 112) << 23 | u32::from(fraction) << 13),
        };
        if sign == 1 {
            -size
        } else {
            size
        }
    }
}

impl From<f32> for F16 {
    /// Rounds to nearest, ties to even; too large becomes infinite, NaN stays NaN.
    fn from(number: f32) -> F16 {
        let sign = (number.to_bits() >> 16 & 0x8000) as u16;
        let size = number.abs();
        let bits = if number.is_nan() {
            0x7e00
        } else if size >= 65520.0 {
            0x7c00
        } else if size < 2f32.powi(-14) {
            (size * 2f32.powi(24)).round_ties_even() as u16 // exact product; 1,024 is the smallest normal number
        } else {
            let bits = size.to_bits();
            ((bits + 0xfff + (bits >> 13 & 1) - (112 << 23)) >> 13) as u16
        };
        F16(sign | bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_as_ieee_says() {
        let cases = [(0.0, 0), (1.0, 0x3c00), (-2.0, 0xc000), (65504.0, 0x7bff), (65520.0, 0x7c00), (6e-8, 1)];
        for (number, bits) in cases {
            assert_eq!(F16::from(number).0, bits, "{number}");
        }
        assert_eq!(F16::from(1.0 + 2f32.powi(-11)).0, 0x3c00, "a tie goes to the even one");
        assert_eq!(F16::from(1.0 + 3.0 * 2f32.powi(-11)).0, 0x3c02);
        for bits in (0..=0xffffu16).filter(|b| b & 0x7fff <= 0x7c00) {
            assert_eq!(F16::from(f32::from(F16(bits))).0, bits, "{bits:#x} there and back");
        }
        assert!(f32::from(F16::from(f32::NAN)).is_nan());
    }

    #[test]
    fn brains_round_to_even() {
        assert_eq!(Bf16::from(1.0).0, 0x3f80);
        assert_eq!(Bf16::from(f32::from_bits(0x3f80_8000)).0, 0x3f80);
        assert_eq!(Bf16::from(f32::from_bits(0x3f81_8000)).0, 0x3f82);
        assert!(f32::from(Bf16::from(f32::NAN)).is_nan());
        assert_eq!(f32::from(Bf16::from(-3.5)), -3.5);
    }
}
