// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spillway::interpose {

/// The path of this library's file, "" where it is unknown.
std::string own_path();
/// The folder that it lies in.
std::string own_folder();
/// Whether the process finds this library's symbols, not those of another copy of it.
bool comes_first();
/// The path of another copy of this library that comes after this one, "" where there is none.
std::string copy_behind();

/// The folder that programs must search for the Python package around this library: FOLDER for
/// FOLDER/spillway/lib. "" where it lies in no package.
std::string package_folder();

/// Puts package_folder() before PYTHONPATH, so that the Python programs of this process and of its
/// children find the package, unless they search it anyway: where it stands there already, and
/// where it is a folder of installed packages. Call before there are threads: it changes the
/// environment.
void offer_package();

}  // namespace spillway::interpose
