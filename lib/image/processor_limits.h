/* SPDX-License-Identifier: MIT */
/* Ranges of what a preprocessor_config.json may say. */
#ifndef TXDA_IMAGE_PROCESSOR_LIMITS_H
#define TXDA_IMAGE_PROCESSOR_LIMITS_H

#define PROCESSOR_MAX_SIDE   65535
#define PROCESSOR_MAX_SLICES 1000
#define PROCESSOR_MAX_PIXELS 1e12
#define PROCESSOR_MAX_SCALE  1e6
#define PROCESSOR_MAX_VALUE  1e6 /* of mean and std */

#endif
